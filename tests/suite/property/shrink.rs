//! Shortens a failing program as long as it still fails, and prints it.

use crate::property::program::{Step, simpler};
use crate::property::world::{PATIENCE, World};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How long a shrinking may take.
const SHRINKING_MAX: Duration = Duration::from_secs(60);

/// Many failing runs must not take long; a wrong guess only leaves a longer program.
const PATIENCE_SHRINKING: Duration = Duration::from_millis(100);

/// The shortest program found that fails, with its calls and where the two sides differ.
pub(super) async fn report(world: &mut World, seed: u64, program: Vec<Step>) -> String {
    let steps = program.len();
    // What comes after the first difference is out of it.
    let done = world.run(&program, 1, PATIENCE).await.steps;
    let mut shrinking = Shrinking { world, ends_at: Instant::now() + SHRINKING_MAX };
    let smallest = shrinking.shrink(program[..done].to_vec()).await;
    let run = shrinking.world.run(&smallest, 1, PATIENCE).await;
    let mut text = format!("oracle and Redis differ; TALLYSTONE_PROPERTY_SEED={seed} repeats it.\n");
    let _ = writeln!(text, "Of {steps} steps these {} still fail:", smallest.len());
    for call in &run.calls {
        let _ = writeln!(text, "  {call}");
    }
    let what = run.outcome.err().unwrap_or_else(|| "nothing this time: it does not fail every time".to_owned());
    text + &what
}

struct Shrinking<'a> {
    world: &'a mut World,
    ends_at: Instant,
}

impl Shrinking<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.ends_at
    }

    async fn fails(&mut self, program: &[Step]) -> bool {
        self.world.run(program, 1, PATIENCE_SHRINKING).await.outcome.is_err()
    }

    /// Leaves out halves, quarters, … single steps, then makes steps simpler, until nothing helps.
    async fn shrink(&mut self, mut program: Vec<Step>) -> Vec<Step> {
        loop {
            let before = program.len();
            let mut piece = program.len().div_ceil(2);
            while piece > 0 {
                let mut from = 0;
                while from < program.len() && !self.is_over() {
                    let to = (from + piece).min(program.len());
                    let shorter = [&program[..from], &program[to..]].concat();
                    if self.fails(&shorter).await { program = shorter } else { from = to }
                }
                piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
            }
            let simplified = self.simplify(&mut program).await;
            if self.is_over() || (program.len() == before && !simplified) {
                return program;
            }
        }
    }

    async fn simplify(&mut self, program: &mut [Step]) -> bool {
        let mut any = false;
        for at in 0..program.len() {
            let mut candidates = simpler(&program[at]);
            while let Some(candidate) = candidates.pop() {
                if self.is_over() {
                    return any;
                }
                let old = std::mem::replace(&mut program[at], candidate);
                if self.fails(program).await {
                    any = true;
                    candidates = simpler(&program[at]);
                } else {
                    program[at] = old;
                }
            }
        }
        any
    }
}
