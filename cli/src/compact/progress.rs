//! How far a long verb is, on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A progress bar of this number of units; hidden with --json, and if stderr is no terminal.
pub(super) fn bar(units: u64, json: bool) -> ProgressBar {
    let bar = ProgressBar::new(units);
    if json {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {percent:>3}% {msg}, {eta} left") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
