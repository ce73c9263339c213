//! The simulator finds the defects that the queue once had (X1, Q11): each is put into the texts of the scripts again, and
//! breaks its rule. So does one in what closes a shard when the number of shards changes (X4).

use std::sync::Arc;
use tallystone_lua::Script;
use tallystone_simulator::SimulatedRedis;
use tallystone_simulator::episode;
use tallystone_simulator::judge::Rule;

/// At most this number of seeds is tried until an episode finds a defect. Most are found within ten episodes.
const EPISODES: u64 = 2_000;

/// What replaces parts of the texts of scripts, and the rule that an episode breaks then.
struct Defect {
    name: &'static str,
    replaced: &'static [(&'static str, &'static str)],
    breaks: Rule,
}

const GAP: &str = "1000 * span_ms + unpick('>I4', timeline) % 1000";

const DEFECTS: &[Defect] = &[
    Defect {
        name: "numbers continue after lost writes without a gap",
        replaced: &[(GAP, "0")],
        breaks: Rule::FencingTokensDiffer,
    },
    Defect {
        name: "no shard notices another timeline",
        replaced: &[("if #timeline == 4 and timeline", "if timeline == nil and timeline")],
        breaks: Rule::FencingTokensDiffer,
    },
    Defect {
        name: "the gap follows the clock of the new primary, which may be behind",
        replaced: &[(GAP, "1 + 1000 * math.max(0, now - began_at)")],
        breaks: Rule::FencingTokensDiffer,
    },
    Defect {
        name: "revisions continue after lost writes without a gap",
        replaced: &[("(S[1] + gap) % 2 ^ 32", "S[1]")],
        breaks: Rule::Revisions,
    },
    Defect {
        name: "offsets of the outbox continue after lost writes without a gap",
        replaced: &[
            ("begin, begin, begin - (S[14] - S[15])", "begin, S[14], S[15]"),
            ("string.format('%.0f-0', begin)", "string.format('%.0f-0', S[14])"),
        ],
        breaks: Rule::OutboxOffsets,
    },
    Defect {
        name: "Complete does not compare the fencing token",
        replaced: &[("held == fencing_token and lease_now < due", "lease_now < due")],
        breaks: Rule::LeasesEndedByHolders,
    },
    Defect {
        name: "Release does not compare the fencing token",
        replaced: &[("m.fencing_token == fencing_token and lease_now < m.due", "lease_now < m.due")],
        breaks: Rule::LeasesEndedByHolders,
    },
    Defect {
        name: "leases end by the clock of a new primary that is ahead",
        replaced: &[("now < leases_until and now - leases_behind_ms or now", "now")],
        breaks: Rule::LeasesLast,
    },
    Defect {
        name: "a closed shard takes new messages",
        replaced: &[("local closed = byte(ARGV[3]) >= 8", "local closed = false")],
        breaks: Rule::AcknowledgedMessages,
    },
    Defect {
        name: "a value is free although a message of it runs",
        replaced: &[("and 1 or 2, waiting", "and 1 or 1, waiting")],
        breaks: Rule::ExclusiveValues,
    },
];

/// The text of a script with a defect.
fn altered(text: &str, replaced: &[(&str, &str)]) -> String {
    replaced.iter().fold(text.to_owned(), |text, (right, wrong)| text.replace(right, wrong))
}

#[test]
fn x8_each_defect_is_found_when_it_is_put_back_in() {
    for defect in DEFECTS {
        for (right, _) in defect.replaced {
            let has_it = Script::ALL.iter().any(|script| script.source().contains(right));
            assert!(has_it, "{}: no script has '{right}' any more", defect.name);
        }
        let redis = Arc::new(SimulatedRedis::altered(0, move |text| altered(text, defect.replaced)));
        let breaks = |seed: &u64| {
            let episode = episode::run(*seed, &redis, false);
            episode.findings.iter().any(|(rule, _)| *rule == defect.breaks)
        };
        let found = (0..EPISODES).find(breaks);
        println!("{}: {:?} is broken by seed {found:?}", defect.name, defect.breaks);
        assert!(found.is_some(), "{}: no episode breaks {:?}", defect.name, defect.breaks);
    }
}
