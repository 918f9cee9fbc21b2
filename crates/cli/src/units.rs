//! Sizes, times and rates: read from arguments, printed for people.

use std::time::Duration;

/// A size: digits, perhaps a fraction, and a unit. `64MiB`, `64m`, `1.5G`, `4096`. Units are powers of 1024, in either
/// case, with or without `iB` or `B`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size: write for example 4096, 64KiB, 256m or 1.5G (powers of 1024)");
    let number_end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit = unit.trim().to_ascii_lowercase();
    let letter = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match letter {
        "" if unit != "ib" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return Err(wrong());
    }
    let whole: u128 = whole.parse().map_err(|_| wrong())?;
    let fraction_value: u128 = fraction.parse().map_err(|_| wrong())?;
    let scale = fraction.bytes().fold(1u128, |scale, _| scale * 10);
    let bytes = whole.checked_mul(1 << shift).and_then(|bytes| bytes.checked_add((fraction_value << shift) / scale));
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(|| format!("`{text}` is too large"))
}

/// A time: `500ms`, `30s`, `2m`, `12h`, `7d`, or seconds without a unit.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time: write for example 500ms, 30s, 2m, 12h or 7d");
    let number_end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let scale = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number * scale).map_err(|_| wrong())?;
    if time.is_zero() { Err(format!("`{text}` is no time at all")) } else { Ok(time) }
}

/// A count: `20000000`, `20m`, `1k`. Units are powers of 1000.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a count: write for example 1000000, 20m or 64k (powers of 1000)");
    let plain = text.replace(['_', ','], "").to_ascii_lowercase();
    let (number, scale) = match plain.as_bytes().last() {
        Some(b'k') => (&plain[..plain.len() - 1], 1_000),
        Some(b'm') => (&plain[..plain.len() - 1], 1_000_000),
        Some(b'g') => (&plain[..plain.len() - 1], 1_000_000_000),
        _ => (plain.as_str(), 1),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).ok_or_else(wrong)
}

/// `1234567` as `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate or another number without its unit: three digits that matter, thousands apart.
pub(crate) fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        return format!("{value:.digits$}");
    }
    let rounded = format!("{value:.0}");
    rounded.parse().map_or(rounded, count)
}

/// `64.0 MiB`.
pub(crate) fn bytes(value: u64) -> String {
    bytes_f64(value as f64)
}

/// `64.0 MiB`, of an average.
pub(crate) fn bytes_f64(value: f64) -> String {
    let mut value = value;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter().peekable();
    while let Some(unit) = units.next() {
        if value < 1024.0 || units.peek().is_none() {
            return if unit == "B" { format!("{value:.0} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    unreachable!("the last unit always returns")
}

/// `1.25 s`, `340 ms`, `18 µs`.
pub(crate) fn seconds(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.2} s")
    } else if value >= 0.001 {
        format!("{:.1} ms", value * 1e3)
    } else if value >= 0.000_001 || value == 0.0 {
        format!("{:.1} µs", value * 1e6)
    } else {
        format!("{:.0} ns", value * 1e9)
    }
}

/// Microseconds, with the unit that fits.
pub(crate) fn microseconds(value: f64) -> String {
    seconds(value / 1e6)
}

/// `87%`, `2.4%`.
pub(crate) fn percent(share: f64) -> String {
    let digits = match share {
        0.1.. => 0,
        0.01.. => 1,
        _ => 2,
    };
    format!("{:.digits$}%", share * 100.0)
}

/// A count of bytes or things in memory; the greatest where it is larger.
pub(crate) fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("64MiB", 64 << 20),
            ("64m", 64 << 20),
            ("64 MB", 64 << 20),
            ("1g", 1 << 30),
            ("1.5G", 3 << 29),
            ("2t", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "m", "x", "1x", "1.2.3m", "-1", "1e3", "99999999999999999999", "16777216t", "1.", ".5g", "5ib"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_counts() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(
            [parse_time("1.5h"), parse_time("7d")],
            [5400, 604_800].map(|seconds| Ok(Duration::from_secs(seconds)))
        );
        assert!(parse_time("0").is_err() && parse_time("s").is_err() && parse_time("5y").is_err());
        assert_eq!(parse_count("20m"), Ok(20_000_000));
        assert_eq!(parse_count("1_000"), Ok(1000));
        assert!(parse_count("").is_err() && parse_count("k").is_err() && parse_count("1.5m").is_err());
    }

    #[test]
    fn for_people() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(number(12345.6), "12,346");
        assert_eq!(number(4.567), "4.57");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(bytes(100), "100 B");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(microseconds(1.26), "1.3 µs");
        assert_eq!(microseconds(0.031), "31 ns");
        assert_eq!([0.874, 0.0244, 0.0012, 16.8].map(percent), ["87%", "2.4%", "0.12%", "1680%"]);
    }
}
