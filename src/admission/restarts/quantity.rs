//! The comparison of two quantities: `1Gi` and `1073741824` are the same amount, so a kubelet finds
//! nothing to do.

/// Whether both are the same amount. A missing quantity is 0. A quantity that cannot be read equals
/// only itself.
pub(super) fn same(one: Option<&str>, other: Option<&str>) -> bool {
    let (one, other) = (one.unwrap_or("0"), other.unwrap_or("0"));
    one == other || amount(one).is_some_and(|amount_of_one| Some(amount_of_one) == amount(other))
}

/// The amount in billionths.
fn amount(quantity: &str) -> Option<i128> {
    let end = quantity
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = u32::try_from(fraction.len()).ok()?;
    let scaled = digits.checked_mul(scale(suffix)?)?;
    let divisor = 10_i128.checked_pow(places)?;
    (scaled % divisor == 0).then(|| scaled / divisor)
}

/// The factor of a suffix, in billionths.
fn scale(suffix: &str) -> Option<i128> {
    let ten = |exponent: u32| 10_i128.checked_pow(exponent);
    let two = |exponent: u32| 2_i128.checked_pow(exponent)?.checked_mul(1_000_000_000);
    match suffix {
        "n" => ten(0),
        "u" => ten(3),
        "m" => ten(6),
        "" => ten(9),
        "k" => ten(12),
        "M" => ten(15),
        "G" => ten(18),
        "T" => ten(21),
        "P" => ten(24),
        "E" => ten(27),
        "Ki" => two(10),
        "Mi" => two(20),
        "Gi" => two(30),
        "Ti" => two(40),
        "Pi" => two(50),
        "Ei" => two(60),
        exponent => {
            let exponent: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            ten(u32::try_from(exponent.checked_add(9)?).ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_the_same_however_it_is_written() {
        for (one, other) in [
            ("1Gi", "1073741824"),
            ("1", "1000m"),
            ("0.5", "500m"),
            ("1e3", "1k"),
            ("1E3", "1k"),
            ("5E", "5000P"),
            ("1500u", "1.5m"),
            ("262144k", "262144000"),
            ("100n", "100n"),
        ] {
            assert!(same(Some(one), Some(other)), "{one} {other}");
            assert!(same(Some(other), Some(one)), "{other} {one}");
        }
        assert!(same(None, Some("0")) && same(Some("0m"), None) && same(None, None));
    }

    #[test]
    fn other_amounts_and_what_cannot_be_read_differ() {
        for (one, other) in [
            ("1Gi", "1G"),
            ("1", "1m"),
            ("1", "2"),
            ("x", "y"),
            ("1x", "1"),
            ("", "0"),
            ("99999999999999999999Ei", "1"),
            ("1e2147483647", "1"),
            ("1e-2147483648", "0"),
            ("-1", "1"),
            ("1.5", "1"),
        ] {
            assert!(!same(Some(one), Some(other)), "{one} {other}");
        }
        assert!(!same(None, Some("1")));
        assert!(same(Some("x"), Some("x")));
        let (nines, nothings) = ("9".repeat(100_000), format!("0.{}1", "0".repeat(100_000)));
        assert!(!same(Some(&nines), Some("1")) && !same(Some(&nothings), None));
    }
}
