//! The report as a person reads it.

use super::quantiles::Quantiles;
use super::report::{FlightsReport, Share};
use indicatif::HumanCount;
use owo_colors::{OwoColorize, Stream::Stdout};
use std::fmt::{Display, Formatter, Result};

/// The longest bar.
const BAR_CELLS: f64 = 36.0;

impl Display for FlightsReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let headline = format!(
            "{} flights of {} aircraft, flown by {} workers in {:.1} s",
            grouped(self.completed),
            grouped(self.aircraft),
            self.workers,
            self.elapsed_s
        );
        writeln!(f, "{}", headline.if_supports_color(Stdout, |text| text.bold()))?;
        self.rates(f)?;
        bars(f, "By carrier", &self.carriers, carrier_name)?;
        bars(f, "By airport", &self.origins, airport_name)?;
        bars(f, "Busiest aircraft", &self.busiest_aircraft, |_| "")?;
        self.refused(f)?;
        self.story_of_the_killed(f)?;
        self.counted(f)?;
        self.asked(f)?;
        heading(f, "Checked, from what the workers wrote down")?;
        for check in &self.checks {
            let mark = match check.passed {
                true => "✓".if_supports_color(Stdout, |mark| mark.green()).to_string(),
                false => "✗".if_supports_color(Stdout, |mark| mark.red()).to_string(),
            };
            writeln!(f, "  {mark} {}  ({})", check.name, check.detail)?;
        }
        Ok(())
    }
}

impl FlightsReport {
    fn rates(&self, f: &mut Formatter<'_>) -> Result {
        let Quantiles { p50, p99, .. } = self.waits.next_flight_ms;
        let rows = format!("{} rows of {}", grouped(self.rows), self.file);
        writeln!(f, "  {rows}: {} enqueued, {} refused", grouped(self.enqueued), grouped(self.refused.values().sum()))?;
        if self.repeated > 0 {
            writeln!(f, "  {} rows came twice and are the same message", grouped(self.repeated))?;
        }
        writeln!(f, "  enqueued {:>9}/s", grouped(self.enqueue_per_s as u64))?;
        let in_all = grouped(self.completed_per_s as u64);
        match self.completed_per_s_before_kill {
            Some(before) => writeln!(
                f,
                "  flown    {:>9}/s until a worker was killed, {in_all}/s with the wait for its leases",
                grouped(before as u64)
            )?,
            None => writeln!(f, "  flown    {in_all:>9}/s, each leased and completed")?,
        }
        writeln!(f, "  from one landing to the next flight in hand: p50 {p50:.1} ms, p99 {p99:.1} ms")?;
        let Quantiles { p50, p99, .. } = self.waits.in_queue_ms;
        writeln!(f, "  waited in the queue: p50 {:.1} s, p99 {:.1} s", p50 / 1e3, p99 / 1e3)
    }

    fn refused(&self, f: &mut Formatter<'_>) -> Result {
        if self.refused_rows.is_empty() {
            return Ok(());
        }
        heading(f, "Refused")?;
        for rows in &self.refused_rows {
            writeln!(f, "  {} × {}: {}", grouped(rows.rows), rows.reason, rows.message)?;
            writeln!(f, "    such as {}", rows.example)?;
        }
        Ok(())
    }

    fn story_of_the_killed(&self, f: &mut Formatter<'_>) -> Result {
        let Some(killed) = &self.killed else { return Ok(()) };
        heading(f, "A worker was killed")?;
        let (worker, at, held) = (killed.worker, killed.killed_at_s, killed.flights.len());
        writeln!(f, "  pilot-{worker} at {at:.2} s, with {held} flights in the air; their leases lapsed, and:")?;
        for flight in &killed.flights {
            write!(f, "  {:<7} {:<32}", flight.aircraft, flight.id)?;
            match flight.flown_by {
                Some(by) => {
                    let (attempt, after) = (flight.attempt, flight.taken_over_after_s);
                    writeln!(f, " flown by pilot-{by} at attempt {attempt}, {after:.2} s after the kill")?;
                }
                None => writeln!(f, " flown by nobody")?,
            }
        }
        Ok(())
    }
}

impl FlightsReport {
    fn counted(&self, f: &mut Formatter<'_>) -> Result {
        let Some(tally) = &self.counting else { return Ok(()) };
        heading(f, "Counted, with every add sent twice and a rollup worker killed")?;
        let (adds, counters, per_s) = (tally.adds, self.counters.len() as u64, 2.0 * tally.adds as f64 / tally.send_s);
        writeln!(f, "  {} adds to {} counters, twice: {}/s", grouped(adds), grouped(counters), grouped(per_s as u64))?;
        let rollups = &tally.rollups;
        writeln!(
            f,
            "  {} rollups by two workers; every count was exact {:.1} s after the last add",
            grouped(rollups.committed),
            tally.exact_after_s
        )?;
        if let Some(killed) = &tally.killed_worker {
            let (name, begun, in_hand) = (&killed.name, grouped(killed.begun), killed.unfinished);
            writeln!(f, "  {name} was killed after it had begun {begun} rollups, {in_hand} of them unfinished")?;
        }
        writeln!(f, "  {:<20} {:>9} {:>13}", "", "counted", "in the file")?;
        let mut lines = 0;
        for (kind, most) in [("carrier/", 3), ("origin/", 3), ("route/", 3), ("aircraft/", 3)] {
            let mut of_kind: Vec<(&String, i64)> = tally
                .direct
                .iter()
                .filter(|(name, _)| name.starts_with(kind))
                .map(|(name, total)| (name, *total))
                .collect();
            of_kind.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
            for (name, direct) in of_kind.into_iter().take(most) {
                let counted = self.counters.get(name).copied().unwrap_or_default();
                writeln!(f, "  {name:<20} {counted:>9} {direct:>13}")?;
                lines += 1;
            }
        }
        writeln!(f, "  and {} more", grouped(counters.saturating_sub(lines)))
    }

    fn asked(&self, f: &mut Formatter<'_>) -> Result {
        let Some(asked) = &self.history else { return Ok(()) };
        heading(f, "Asked of history")?;
        if let Some(longest) = &asked.longest_wait {
            let waited = longest.waited_ms as f64 / 1e3;
            writeln!(
                f,
                "  Which flight waited longest, and for what? {} of {}: {waited:.1} s,",
                longest.flight, longest.aircraft
            )?;
            writeln!(
                f,
                "    because {} flights of the same aircraft came before it, which was taken for {:.1} s of that",
                grouped(longest.flights_before),
                longest.aircraft_busy_ms as f64 / 1e3
            )?;
            if longest.dead_lease_ms > 0 {
                let lapsed = longest.dead_lease_ms as f64 / 1e3;
                writeln!(f, "    ({lapsed:.1} s of it by the killed worker, until its lease had lapsed)")?;
            }
        }
        writeln!(f, "  How long did each carrier's flights wait to have landed?")?;
        for carrier in &asked.waits_by_carrier {
            let (p50, p99) = (carrier.wait_ms.p50 / 1e3, carrier.wait_ms.p99 / 1e3);
            let (code, name, flights) = (&carrier.carrier, carrier_name(&carrier.carrier), grouped(carrier.flights));
            writeln!(f, "    {code:<3} {name:<19} {flights:>6} flights   p50 {p50:>5.1} s   p99 {p99:>5.1} s")?;
        }
        if let Some(killed) = &asked.killed_flight {
            writeln!(f, "  What happened to a flight whose worker was killed?")?;
            for line in killed.drawn.lines() {
                writeln!(f, "    {line}")?;
            }
        }
        writeln!(f, "  All of it could be asked {:.0} ms after the last landing.", asked.indexed_after_ms)
    }
}

fn heading(f: &mut Formatter<'_>, text: &str) -> Result {
    writeln!(f, "\n{}", text.if_supports_color(Stdout, |text| text.bold()))
}

/// 1234567 as `1,234,567`.
fn grouped(n: u64) -> String {
    HumanCount(n).to_string()
}

/// One line and bar per name.
fn bars(f: &mut Formatter<'_>, title: &str, shares: &[Share], full_name: fn(&str) -> &'static str) -> Result {
    if shares.is_empty() {
        return Ok(());
    }
    heading(f, title)?;
    let most = shares.iter().map(|share| share.flights).max().unwrap_or(1).max(1) as f64;
    let width = shares.iter().map(|share| full_name(&share.name).len()).max().unwrap_or(0);
    for share in shares {
        let (name, flights) = (&share.name, grouped(share.flights));
        let bar = bar(share.flights as f64 / most);
        let bar = bar.if_supports_color(Stdout, |bar| bar.cyan());
        writeln!(f, "  {name:<6} {:<width$} {flights:>7} {bar}", full_name(name))?;
    }
    Ok(())
}

/// A bar of a length from 0 to 1, exact to an eighth of a cell.
fn bar(length: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // At least the thinnest: there is something.
    let eighths = (length.clamp(0.0, 1.0) * BAR_CELLS * 8.0).round().max(1.0) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn carrier_name(code: &str) -> &'static str {
    match code {
        "9E" => "Endeavor Air",
        "AA" => "American Airlines",
        "AS" => "Alaska Airlines",
        "B6" => "JetBlue Airways",
        "DL" => "Delta Air Lines",
        "EV" => "ExpressJet Airlines",
        "F9" => "Frontier Airlines",
        "FL" => "AirTran Airways",
        "HA" => "Hawaiian Airlines",
        "MQ" => "Envoy Air",
        "OO" => "SkyWest Airlines",
        "UA" => "United Air Lines",
        "US" => "US Airways",
        "VX" => "Virgin America",
        "WN" => "Southwest Airlines",
        "YV" => "Mesa Airlines",
        _ => "",
    }
}

fn airport_name(code: &str) -> &'static str {
    match code {
        "EWR" => "Newark Liberty",
        "JFK" => "John F. Kennedy",
        "LGA" => "LaGuardia",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(1.0), "█".repeat(36));
        assert_eq!(bar(0.5), "█".repeat(18));
        assert_eq!(bar(0.0), "▏");
        assert_eq!(bar(1.5 / 36.0), "█▌");
    }
}
