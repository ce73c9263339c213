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
    /// The day, as a prefix, and the first and last ms of it.
    day: Option<(TimeZone, String, u64, u64)>,
}

impl CounterNames {
    pub(crate) fn new(window: &Window) -> CounterNames {
        let day = match window {
            Window::Day(zone) => Some((zone.clone(), String::new(), 1, 0)),
            _ => None,
        };
        CounterNames { day }
    }

    /// The counter of a video for views of this time (Unix ms).
    pub(crate) fn name(&mut self, video: &str, at_ms: u64) -> String {
        let Some((zone, prefix, first_ms, last_ms)) = &mut self.day else { return video.to_owned() };
        if !(*first_ms..=*last_ms).contains(&at_ms) {
            let day;
            (day, *first_ms, *last_ms) = day_at(zone, at_ms);
            *prefix = day_prefix(day);
        }
        format!("{prefix}{video}")
    }
}

/// What the name of a counter of this day begins with.
pub(crate) fn day_prefix(day: Date) -> String {
    format!("{day}/")
}
