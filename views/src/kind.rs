//! What one view may add to, and the counters that have the sums.

use crate::config::ViewNamespace;
use crate::dedupe::{Window, day_at};
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindName {
    /// Pairs of video and user, once in each window.
    Views,
    /// Every view.
    PageViews,
    /// Users, once on each day.
    DailyVisitors,
}

/// A kind of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) name: KindName,
    pub(crate) window: Window,
    /// The namespace of its counters.
    pub(crate) counters: String,
    /// Names its pairs in the log. Another window begins with no pairs.
    pub(crate) pairs: String,
}

/// The kinds of a namespace of a checked configuration.
pub(crate) fn kinds_of(namespace: &ViewNamespace) -> Vec<Kind> {
    let zone = namespace.zone().unwrap_or(TimeZone::UTC);
    let kind = |name: KindName, prefix: &str, window: Window, id: String| Kind {
        name,
        window,
        counters: format!("{prefix}-{}", namespace.name),
        pairs: format!("pairs:{}:{id}", namespace.name),
    };
    let views = namespace.view_window();
    let id = match &views {
        Window::Tumbling(window_ms) => format!("tumbling-{window_ms}"),
        _ => format!("sliding-{}", namespace.window_ms),
    };
    let mut kinds = vec![kind(KindName::Views, "views", views, id)];
    if namespace.page_views {
        kinds.push(kind(KindName::PageViews, "page-views", Window::None, "none".to_owned()));
    }
    if namespace.daily_visitors {
        let id = format!("day-{}", namespace.time_zone);
        kinds.push(kind(KindName::DailyVisitors, "daily-visitors", Window::Day(zone), id));
    }
    kinds
}

/// The names of a kind's counters for views at about one time.
pub(crate) struct CounterNames {
    /// The zone of its days, and the first and last ms of the last one.
    day: Option<(TimeZone, u64, u64)>,
    /// The last name. It begins with the day.
    name: String,
    prefix_bytes: usize,
}

impl CounterNames {
    pub(crate) fn new(window: &Window) -> CounterNames {
        let day = match window {
            Window::Day(zone) => Some((zone.clone(), 1, 0)),
            _ => None,
        };
        CounterNames { day, name: String::new(), prefix_bytes: 0 }
    }

    /// The counter of a video for views of this time (Unix ms).
    pub(crate) fn name(&mut self, video: &str, at_ms: u64) -> &str {
        self.name.truncate(self.prefix_bytes);
        if let Some((zone, first_ms, last_ms)) = &mut self.day
            && !(*first_ms..=*last_ms).contains(&at_ms)
        {
            let day;
            (day, *first_ms, *last_ms) = day_at(zone, at_ms);
            self.name = day_prefix(day);
            self.prefix_bytes = self.name.len();
        }
        self.name.push_str(video);
        &self.name
    }
}

/// What the name of a counter of this day begins with.
pub(crate) fn day_prefix(day: Date) -> String {
    format!("{day}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v6_names_follow_the_video_and_the_day() {
        const DAY_MS: u64 = 86_400_000;
        let mut daily = CounterNames::new(&Window::Day(TimeZone::UTC));
        let names = [("cats", 0), ("a", DAY_MS - 1), ("dogs", DAY_MS), ("b", 0)];
        let names = names.map(|(video, at_ms)| daily.name(video, at_ms).to_owned());
        assert_eq!(names, ["1970-01-01/cats", "1970-01-01/a", "1970-01-02/dogs", "1970-01-01/b"]);
        let mut plain = CounterNames::new(&Window::None);
        assert_eq!(["cats", "a"].map(|video| plain.name(video, 0).to_owned()), ["cats", "a"]);
    }
}
