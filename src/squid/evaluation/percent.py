"""Shares as people read them: in percent, the same in the terminal, the report and every table."""


def percent(share: float | None) -> str:
    """A measured share with one digit, without the sign: 0.9807 -> 98.1; None -> -."""
    return "-" if share is None else f"{100 * share:.1f}"


def percent_range(low: float, high: float) -> str:
    """An interval of shares: 96.5 to 99.1."""
    return f"{percent(low)} to {percent(high)}"


def rate_percent(rate: float) -> str:
    """A share that was asked for, with its sign and no more digits than it has: 0.1 -> 10 %."""
    return f"{100 * rate:.4g} %"
