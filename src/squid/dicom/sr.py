"""The structured report of a score (Comprehensive SR, TID 1500): what machines read."""

import math
from datetime import datetime

from highdicom.sr import (
    AlgorithmIdentification,
    DeviceObserverIdentifyingAttributes,
    Measurement,
    MeasurementReport,
    MeasurementsAndQualitativeEvaluations,
    ObservationContext,
    ObserverContext,
    QualitativeEvaluation,
    SourceImageForMeasurementGroup,
    TrackingIdentifier,
)
from pydicom.dataset import Dataset

from squid.data.dicom import MANUFACTURER
from squid.detector import Prediction
from squid.dicom import codes
from squid.dicom.algorithm import Algorithm
from squid.dicom.instance import DESCRIPTION, REPORT, new_instance, uid_of
from squid.dicom.source import Source
from squid.dicom.wording import rarity


def report(source: Source, prediction: Prediction, algorithm: Algorithm, made: datetime) -> Dataset:
    """Score, p-value and the coded answer, with what they were made of and by."""
    instance = new_instance(source, REPORT, algorithm, made)
    instance.ContentDate = made.strftime("%Y%m%d")
    instance.ContentTime = made.strftime("%H%M%S")
    # Nobody has read it, and nobody answers for it.
    instance.CompletionFlag = "COMPLETE"
    instance.PreliminaryFlag = "PRELIMINARY"
    instance.VerificationFlag = "UNVERIFIED"
    instance.PerformedProcedureCodeSequence = []
    instance.ReferencedPerformedProcedureStepSequence = []
    instance.CurrentRequestedProcedureEvidenceSequence = [_evidence(source)]
    instance.CodingSchemeIdentificationSequence = [codes.scheme()]
    for element in _content(source, prediction, algorithm):
        instance[element.tag] = element
    return instance


def _content(source: Source, prediction: Prediction, algorithm: Algorithm) -> Dataset:
    """The root of the content tree."""
    observer = DeviceObserverIdentifyingAttributes(
        uid=uid_of("device", algorithm.model),
        name=DESCRIPTION,
        manufacturer_name=MANUFACTURER,
        model_name=algorithm.name,
        serial_number=algorithm.model,
    )
    context = ObservationContext(observer_device_context=ObserverContext(codes.DEVICE, observer))
    root: Dataset = MeasurementReport(
        observation_context=context,
        procedure_reported=codes.IMAGING_PROCEDURE,
        imaging_measurements=[_group(source, prediction, algorithm)],
    )[0]
    return root


def _group(
    source: Source, prediction: Prediction, algorithm: Algorithm
) -> MeasurementsAndQualitativeEvaluations:
    """What was found in the image (TID 1501)."""
    numbers = (
        (codes.SCORE, prediction.score),
        (codes.P_VALUE, prediction.p_value),
        (codes.THRESHOLD, algorithm.threshold),
        (codes.RATE, algorithm.rate),
    )
    answers = (
        [] if prediction.flagged is None else [(codes.REACHES, codes.answer(prediction.flagged))]
    )
    steps = [f"Step of reading: {step}" for step in prediction.steps]
    # The smallest p-value is no estimate, which its number does not say.
    in_words = [] if prediction.p_value is None else [f"P-value in words: {rarity(prediction)}"]
    return MeasurementsAndQualitativeEvaluations(
        tracking_identifier=TrackingIdentifier(
            uid_of(source.uid, algorithm.identity, "whole image"), "Whole image"
        ),
        algorithm_id=AlgorithmIdentification(
            algorithm.name,
            algorithm.version,
            parameters=[*algorithm.parameters, *in_words, *steps],
            manufacturer=MANUFACTURER,
        ),
        measurements=[
            Measurement(name, value, codes.RATIO)
            for name, value in numbers
            if value is not None and math.isfinite(value)
        ],
        qualitative_evaluations=[QualitativeEvaluation(name, value) for name, value in answers],
        source_images=[SourceImageForMeasurementGroup(str(source.header.SOPClassUID), source.uid)],
    )


def _evidence(source: Source) -> Dataset:
    """The study, series and image that the report rests on."""
    series = source.series_reference()
    series.ReferencedSOPSequence = [source.reference()]
    study = Dataset()
    study.StudyInstanceUID = source.study
    study.ReferencedSeriesSequence = [series]
    return study
