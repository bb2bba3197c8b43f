"""The DICOM elements that are read, by the names of the standard (PS3.6)."""

from enum import IntEnum


class Tag(IntEnum):
    """Group and number of an element."""

    MediaStorageSOPClassUID = 0x00020002
    TransferSyntaxUID = 0x00020010
    ImageType = 0x00080008
    SOPClassUID = 0x00080016
    SOPInstanceUID = 0x00080018
    Modality = 0x00080060
    PresentationIntentType = 0x00080068
    Manufacturer = 0x00080070
    CodeValue = 0x00080100
    CodingSchemeDesignator = 0x00080102
    PatientID = 0x00100020
    PatientSex = 0x00100040
    PatientAge = 0x00101010
    BodyPartExamined = 0x00180015
    ImagerPixelSpacing = 0x00181164
    ViewPosition = 0x00185101
    StudyInstanceUID = 0x0020000D
    SeriesInstanceUID = 0x0020000E
    SamplesPerPixel = 0x00280002
    PhotometricInterpretation = 0x00280004
    PlanarConfiguration = 0x00280006
    NumberOfFrames = 0x00280008
    Rows = 0x00280010
    Columns = 0x00280011
    PixelSpacing = 0x00280030
    PixelAspectRatio = 0x00280034
    BitsAllocated = 0x00280100
    BitsStored = 0x00280101
    HighBit = 0x00280102
    PixelRepresentation = 0x00280103
    PixelPaddingValue = 0x00280120
    PixelPaddingRangeLimit = 0x00280121
    BurnedInAnnotation = 0x00280301
    WindowCenter = 0x00281050
    WindowWidth = 0x00281051
    RescaleIntercept = 0x00281052
    RescaleSlope = 0x00281053
    WindowCenterWidthExplanation = 0x00281055
    VOILUTFunction = 0x00281056
    ModalityLUTSequence = 0x00283000
    LUTDescriptor = 0x00283002
    LUTExplanation = 0x00283003
    LUTData = 0x00283006
    VOILUTSequence = 0x00283010
    ViewCodeSequence = 0x00540220
    PresentationLUTShape = 0x20500020
    PixelData = 0x7FE00010
