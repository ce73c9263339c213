//! What pushes do with the disk: steps 1 to 3, 6 and 7 of [`push`](super::push), and adds that are put aside.

use super::error::{IoContext as _, LocalError};
use super::files;
use super::folder::Folder;
use super::push_file::{Item, Push};
use super::slot::{Slot, unix_ms};
use super::unresolved::Unresolved;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// The outcome of writing pushes.
#[derive(Default)]
pub(super) struct Written {
    pub(super) on_disk: Vec<Push>,
    /// Their files may have got their names, but a later step failed.
    pub(super) unsent: Vec<Push>,
    pub(super) failed: Vec<String>,
}

/// The adds that have no definite answer yet. The bases of the others are set.
pub(super) fn rest<'a>(folder: &'a Folder, push: &'a Push) -> impl Iterator<Item = &'a Item> {
    push.items.iter().filter(|item| folder.cells.base(item.slot as usize) != item.base)
}

/// Step 1: a push for each namespace that has unpushed adds and no unfinished push.
pub(super) fn capture(folder: &Folder, held: &[String]) -> Vec<Push> {
    let mut pushes = Vec::new();
    for (namespace, slots) in folder.slots().iter().filter(|(namespace, _)| !held.contains(namespace)) {
        let item = |slot: &Slot| {
            let (total, base) = (folder.cells.total(slot.index as usize), folder.cells.base(slot.index as usize));
            let delta = total.wrapping_sub(base);
            (delta != 0).then(|| Item { slot: slot.index, counter: slot.counter.clone(), delta, base: total })
        };
        let items: Vec<Item> = slots.values().filter_map(|slot| item(slot)).collect();
        if !items.is_empty() {
            let (token, time_ms) = new_event();
            pushes.push(Push { namespace: namespace.clone(), token, time_ms, logged: None, items });
        }
    }
    folder.options.steps.reach("totals are read");
    pushes
}

/// A new token, and the time.
fn new_event() -> (String, u64) {
    (uuid::Uuid::new_v4().simple().to_string(), unix_ms(SystemTime::now()))
}

/// Steps 2 and 3. A push that cannot be written does not delay the others.
pub(super) fn write(folder: &Folder, pushes: Vec<Push>) -> Result<Written, LocalError> {
    let mut written = Written::default();
    if pushes.is_empty() {
        return Ok(written);
    }
    folder.sync()?;
    for push in pushes {
        let path = Push::path(&folder.path, &push.namespace);
        if let Err(error) = push.write(&folder.path, folder.cells.folder_id()).when("write", &path) {
            written.failed.push(error.to_string());
            continue;
        }
        folder.options.steps.reach("a push is written");
        if let Err(error) = push.finish(&folder.path).when("rename", &path) {
            written.failed.push(error.to_string());
            written.unsent.push(push);
            continue;
        }
        folder.options.steps.reach("a push has its name");
        written.on_disk.push(push);
    }
    if !written.on_disk.is_empty()
        && let Err(error) = folder.sync_files()
    {
        written.failed.push(error.to_string());
        written.unsent.append(&mut written.on_disk);
    }
    Ok(written)
}

/// Keeps adds for an operator. From here on the push does not have them.
pub(super) fn set_aside(folder: &Folder, push: &Push, adds: &[Unresolved]) -> Result<(), LocalError> {
    folder.unresolved.append(adds).when("write unresolved adds to", &folder.path)?;
    folder.options.steps.reach("unresolved adds are on disk");
    folder.tally.unresolved.fetch_add(adds.len() as u64, Ordering::Relaxed);
    let aside: HashMap<&str, &Unresolved> = adds.iter().map(|add| (add.counter.as_str(), add)).collect();
    for item in push.items.iter().filter(|item| aside.contains_key(item.counter.as_str())) {
        let slot = folder.slots().get(&push.namespace).and_then(|slots| slots.get(&item.counter)).cloned();
        let _base_moves = slot.as_ref().map(|slot| slot.state());
        folder.cells.set_base(item.slot as usize, item.base);
    }
    Ok(())
}

/// The rest of a push whose adds are all TOO_OLD, with a new token and the time of now. It is on disk before it is
/// sent: after a crash, the new one or the old one is sent, and the adds of the old one never count. Its file lacks the
/// adds that have counted, so their bases must be on disk before it, which step 2 does.
pub(super) fn renewed(folder: &Folder, push: &Push) -> Push {
    let (token, time_ms) = new_event();
    let items = rest(folder, push).cloned().collect();
    Push { namespace: push.namespace.clone(), token, time_ms, logged: None, items }
}

/// Steps 6 and 7.
pub(super) fn remove(folder: &Folder, namespaces: &[String]) -> Result<(), LocalError> {
    if namespaces.is_empty() {
        return Ok(());
    }
    folder.sync()?;
    let mut removed = Ok(());
    for namespace in namespaces {
        let path = Push::path(&folder.path, namespace);
        // One that cannot be removed does not delay the others.
        removed = removed.and(files::remove(&path).when("remove", &path));
        folder.options.steps.reach("a push is removed");
    }
    removed.and(folder.sync_files())
}
