//! `tallystone counter namespace plan`: what an installation needs for a load. It connects to nothing.

use super::no_server::NoServer;
use super::put::TypeName;
use crate::duration::{format_ms, parse_ms};
use crate::error::CliError;
use crate::flag_names::with_flag;
use crate::output::{Output, grouped};
use crate::table::table;
use crate::text::visible;
use clap::{Args, ValueEnum};
use indicatif::BinaryBytes;
use tallystone_counters::namespace::CounterType;
use tallystone_counters::plan::{Demand, Machine, Part, Plan};
use tallystone_counters::{NamespaceConfig, Refusal};

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// The namespace, for the command that creates it
    #[arg(default_value = "NAME", hide_default_value = true)]
    name: String,
    /// Adds each second at the busiest time, of all counters together
    #[arg(long, value_name = "N")]
    adds_per_s: u64,
    /// The number of counters
    #[arg(long, value_name = "N")]
    num_counters: u64,
    /// How long events are kept
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "7days")]
    retention: u64,
    /// What the counts promise
    #[arg(long = "type", value_enum, value_name = "TYPE", default_value = "eventual")]
    counter_type: TypeName,
    /// Without an archive: events stay in Redis for as long as they are kept
    #[arg(long)]
    no_archive: bool,
    /// All adds to a counter within this time share one rollup
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "10s")]
    coalesce: u64,
    /// Maximum age of an event when it arrives
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "5s")]
    accept_limit: u64,
    /// The mean length of the counters' names
    #[arg(long, value_name = "N", default_value_t = 16)]
    name_bytes: u64,
    /// Cores of one machine
    #[arg(long, value_name = "N", default_value_t = 8)]
    machine_cores: u32,
    /// Memory of one machine in GiB
    #[arg(long, value_name = "N", default_value_t = 32)]
    machine_memory_gib: u32,
    #[command(flatten)]
    _no_server: NoServer,
}

pub(crate) fn run(args: &PlanArgs, output: Output) -> Result<(), CliError> {
    let (plan, machine) = args.plan()?;
    output.one(&plan, |plan| text(plan, args, &machine))
}

impl PlanArgs {
    fn plan(&self) -> Result<(Plan, Machine), CliError> {
        let demand = Demand {
            counter_type: self.counter_type.into(),
            adds_per_s: self.adds_per_s,
            counters: self.num_counters,
            name_bytes: self.name_bytes,
            retention_ms: self.retention,
            has_archive: !self.no_archive,
            coalesce_ms: self.coalesce,
            accept_limit_ms: self.accept_limit,
        };
        let machine = Machine { cores: self.machine_cores, memory_bytes: u64::from(self.machine_memory_gib) << 30 };
        let plan = Plan::new(&demand, &machine).map_err(|refusal| refused(&refusal))?;
        Ok((plan, machine))
    }
}

fn refused(refusal: &Refusal) -> CliError {
    let in_flags = match refusal {
        Refusal::Invalid { field, why } => with_flag(field, why),
        _ => None,
    };
    in_flags.map_or_else(|| CliError::usage(refusal), CliError::usage)
}

fn text(plan: &Plan, args: &PlanArgs, machine: &Machine) -> String {
    let Plan { rollups, memory, disk, fleet, .. } = plan;
    let bytes = |bytes: u64| BinaryBytes(bytes).to_string();
    let mut lines = vec![
        ("memory of the counters' Redis", bytes(memory.total_bytes())),
        ("  counters", bytes(memory.counters_bytes)),
    ];
    if rollups.per_s > 0.0 {
        lines.extend([
            ("  events that wait for rollups", bytes(memory.waiting_bytes)),
            ("  events after their rollups", bytes(memory.settled_bytes)),
        ]);
    }
    let log = format!("{} at most; writes {}/s", bytes(disk.log_bytes), bytes(disk.log_bytes_per_s));
    lines.push(("its append-only file", log));
    if rollups.per_s > 0.0 {
        let written = format!("writes {}/s", bytes(disk.queue_log_bytes_per_s));
        lines.push(("append-only file of the queue's Redis", written));
        if plan.namespace.archived {
            lines.push((
                "archive",
                format!("{}, {} a day", bytes(disk.archive_bytes), bytes(disk.archive_bytes_per_day)),
            ));
        }
        let per_s = grouped(rollups.per_s.ceil() as u64);
        lines.push(("rollups", format!("{per_s}/s, of {} adds each on average", rounded(rollups.adds_of_one))));
        lines.push(("an add is in the count after", format!("about {}", format_ms(rollups.lag_ms / 1_000 * 1_000))));
    }
    let longest = lines.iter().map(|(what, _)| what.len()).max().unwrap_or_default();
    let lines = lines.into_iter().map(|(what, value)| format!("{what:longest$}  {value}\n")).collect::<String>();
    let parts = fleet.parts.iter().map(part);
    let parts = table(&["processes", "#", "# memory of each"], parts);
    let machines = format!(
        "{} machines of {} cores and {} have room for all of them.",
        fleet.machines,
        machine.cores,
        bytes(machine.memory_bytes)
    );
    let create = creation(args, &plan.namespace);
    let basis = "Half of the processes of a Redis are replicas. The figures are those of `tallystone bench counters` on one \
                 machine, of which a steady load uses 70 %: expect to be within a factor of two.";
    format!("{create}\n\n{lines}\n{parts}\n{machines}\n{basis}")
}

fn part(part: &Part) -> Vec<String> {
    vec![part.name.to_owned(), part.processes.to_string(), BinaryBytes(part.memory_bytes).to_string()]
}

impl From<TypeName> for CounterType {
    fn from(name: TypeName) -> CounterType {
        match name {
            TypeName::BestEffort => CounterType::BestEffort,
            TypeName::Eventual => CounterType::Eventual,
            TypeName::Accurate => CounterType::Accurate,
        }
    }
}

/// Two digits that matter.
fn rounded(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}") } else { grouped(number as u64) }
}

/// The command that creates the namespace: what differs from the defaults.
fn creation(args: &PlanArgs, config: &NamespaceConfig) -> String {
    let default = NamespaceConfig::default();
    let kind = args.counter_type.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let mut command = format!("tallystone counter namespace put {} --type {kind}", visible(&args.name));
    let mut flag = |flag: &str, value: String, default: String| {
        if value != default {
            command += &format!(" --{flag} {value}");
        }
    };
    let duration = |ms: u64| format_ms(ms).replace(' ', "");
    flag("coalesce", duration(config.coalesce_ms), duration(default.coalesce_ms));
    flag("accept-limit", duration(config.accept_limit_ms), duration(default.accept_limit_ms));
    flag("buckets-per-id", config.buckets_per_id.to_string(), default.buckets_per_id.to_string());
    flag("capacity-bytes", config.capacity_bytes.to_string(), default.capacity_bytes.to_string());
    flag("seconds-per-slice", config.seconds_per_slice.to_string(), default.seconds_per_slice.to_string());
    flag("close-after", duration(config.close_after_ms), duration(default.close_after_ms));
    flag("delete-after", duration(config.delete_after_ms), duration(default.delete_after_ms));
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PlanArgs,
    }

    fn args(line: &str) -> PlanArgs {
        Line::try_parse_from(["plan"].into_iter().chain(line.split(' '))).expect("arguments").args
    }

    fn shown(line: &str) -> Result<String, CliError> {
        let args = args(line);
        args.plan().map(|(plan, machine)| text(&plan, &args, &machine))
    }

    #[test]
    fn n21_a_plan_names_configuration_memory_disk_and_machines() {
        let text = shown("ads --adds-per-s 75000 --num-counters 1000000 --retention 30days").expect("a plan");
        let create = text.lines().next().expect("a line");
        assert!(create.starts_with("tallystone counter namespace put ads --type eventual"), "{create}");
        assert!(create.ends_with("--delete-after 30days"), "{create}");
        for part in [
            "memory of the counters' Redis",
            "archive ",
            "a day",
            "append-only",
            "rollups",
            "tallystone server",
            "machines of 8 cores",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let best_effort = shown("--adds-per-s 10 --num-counters 5 --type best-effort").expect("a plan");
        assert!(best_effort.starts_with("tallystone counter namespace put NAME --type best-effort\n"), "{best_effort}");
        assert!(!best_effort.contains("rollup") && !best_effort.contains("archive"), "{best_effort}");
    }

    #[test]
    fn n21_a_load_that_cannot_be_names_its_flag() {
        for (line, flag) in [
            ("--adds-per-s 0 --num-counters 1", "--adds-per-s is 0"),
            ("--adds-per-s 1 --num-counters 0", "--num-counters is 0"),
            ("--adds-per-s 50000000 --num-counters 1000000", "--adds-per-s needs "),
            ("--adds-per-s 1 --num-counters 1 --retention 1m", "--retention is 1m; must be from 2m to 366days"),
            ("--adds-per-s 1 --num-counters 1 --machine-memory-gib 0", "--machine-memory-gib is "),
        ] {
            let error = serde_json::to_value(shown(line).expect_err("a refusal")).expect("JSON");
            assert!(error["error"].as_str().is_some_and(|error| error.starts_with(flag)), "{line}: {error}");
        }
    }
}
