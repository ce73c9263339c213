//! Whether a counter has reached a limit, by its reading: no call, and no reservation (L4).

use super::slot::Reading;

/// Whether a value plus some units passes a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitCheck {
    /// The value plus the units is more than the limit.
    pub passes: bool,
    /// The error bound cannot change this answer.
    pub is_certain: bool,
    /// The bound of the reading, in units; `None`: unknown, so nothing is certain.
    pub error_bound: Option<u64>,
}

impl Reading {
    /// Whether `units` more would pass the limit, by this value and its error bound (L4). It reserves nothing: programs that check and then
    /// add can pass the limit together, by at most the error bound and what they add between a check and the add that follows it.
    /// [`Budget`](crate::budget::Budget) never passes it.
    pub fn check_limit(&self, units: i64, limit: i64) -> LimitCheck {
        // In 128 bits no sum overflows.
        let excess = i128::from(self.value) + i128::from(units) - i128::from(limit);
        let passes = excess > 0;
        let is_within = |bound: u64| if passes { excess > i128::from(bound) } else { -excess >= i128::from(bound) };
        LimitCheck { passes, is_certain: self.error_bound.is_some_and(is_within), error_bound: self.error_bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: i64, error_bound: Option<u64>, units: i64, limit: i64) -> (bool, bool) {
        let reading = Reading { value, error_bound, age_ms: Some(1), pulled_at: None };
        let check = reading.check_limit(units, limit);
        assert_eq!(check.error_bound, error_bound);
        (check.passes, check.is_certain)
    }

    #[test]
    fn l4_a_check_is_certain_where_the_bound_cannot_change_it() {
        assert_eq!(check(90, Some(0), 10, 100), (false, true));
        assert_eq!(check(91, Some(0), 10, 100), (true, true));
        assert_eq!(check(85, Some(5), 10, 100), (false, true));
        assert_eq!(check(85, Some(6), 10, 100), (false, false));
        assert_eq!(check(95, Some(5), 10, 100), (true, false));
        assert_eq!(check(96, Some(5), 10, 100), (true, true));
    }

    #[test]
    fn l4_nothing_is_certain_without_a_bound_and_no_sum_overflows() {
        assert_eq!(check(0, None, 1, 100), (false, false));
        assert_eq!(check(i64::MAX, Some(u64::MAX), i64::MAX, i64::MIN), (true, true));
        assert_eq!(check(i64::MIN, Some(1), i64::MIN, i64::MAX), (false, true));
    }
}
