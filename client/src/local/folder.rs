//! An open folder: its lock, its cells, its names, and the slots of its counters.

use super::cells::Cells;
use super::error::{IoContext as _, LocalError};
use super::files::{self, Lock};
use super::names::{Given, Names};
use super::options::{LocalOptions, check_names};
use super::push_file::Push;
use super::slot::Slot;
use super::stats::{Stats, Tally};
use super::stripes::Stripes;
use super::unresolved::{Unresolved, UnresolvedFile};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

/// The slots by namespace and counter.
type Slots = HashMap<String, HashMap<String, Arc<Slot>>>;

pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) options: LocalOptions,
    pub(super) cells: Cells,
    pub(super) stripes: Arc<Stripes>,
    pub(super) tally: Tally,
    pub(super) unresolved: UnresolvedFile,
    slots: RwLock<Slots>,
    /// Locked before `slots`.
    allocation: Mutex<Allocation>,
    /// No other process has the folder while this file is open.
    _lock: Lock,
}

/// Which slots are free.
struct Allocation {
    names: Names,
    free: Vec<u32>,
}

impl Folder {
    /// Opens or makes the folder, and returns the pushes that a process before this one has begun.
    pub(super) fn open(path: &Path, options: LocalOptions) -> Result<(Folder, Vec<Push>), LocalError> {
        options.check()?;
        std::fs::create_dir_all(path).when("create", path)?;
        let lock = files::lock(path)?;
        if !Cells::exist_in(path) {
            create(path, &options)?;
        }
        // What this process finds may be only in the page cache: a process that was killed may not have synced it. The folder is synced
        // first: after a loss of power, the file of a push that this process sends must be there, and a removed one must not return.
        files::sync_folder(path).when("write", path)?;
        options.steps.reach("files are on disk");
        let cells = Cells::open(path, options.slots_max, options.stripes_max)?;
        let (names, given) = Names::open(path, cells.folder_id(), cells.names_mark(), cells.slots())?;
        cells.set_names_mark(names.mark());
        let mut slots = Slots::new();
        let mut is_free = vec![true; cells.slots()];
        for Given { slot, namespace, counter } in given {
            let index = slot as usize;
            is_free[index] = false;
            let (total, pushed_ms) = (cells.total(index), cells.pushed_ms(index));
            let entry = Arc::new(Slot::new(slot, namespace.clone(), counter.clone(), total, pushed_ms));
            slots.entry(namespace).or_default().insert(counter, entry);
        }
        // A slot is named before its first add, and everything is pushed before it is freed.
        // The last one is given first.
        let free: Vec<u32> = (0..options.slots_max).rev().filter(|slot| is_free[*slot as usize]).collect();
        if let Some(slot) = free.iter().find(|slot| cells.unpushed(**slot as usize) != 0) {
            return Err(LocalError::damaged(&path.join("cells"), format!("slot {slot} has adds, but no name")));
        }
        let pushes = Push::read_all(path, cells.folder_id())?;
        for push in &pushes {
            let of_namespace = slots.get(&push.namespace);
            let slot = |counter| of_namespace.and_then(|slots| slots.get(counter)).map(|slot| slot.index);
            if push.items.iter().any(|item| slot(&item.counter) != Some(item.slot)) {
                let file = Push::path(path, &push.namespace);
                return Err(LocalError::damaged(&file, "its counters are not those of the folder"));
            }
        }
        let (unresolved, adds) = UnresolvedFile::open(path)?;
        let tally = Tally::default();
        tally.unresolved.store(adds.len() as u64, Ordering::Relaxed);
        let put_aside: HashSet<_> = adds.iter().map(Unresolved::event).collect();
        // The process died after it had put these aside, and before it had moved their bases.
        for push in &pushes {
            for item in &push.items {
                let index = item.slot as usize;
                // After a loss of power the base may be there without it.
                cells.set_pushed_ms(index, push.time_ms.max(cells.pushed_ms(index)));
                let event = (push.namespace.clone(), item.counter.clone(), push.token.clone(), push.time_ms);
                if put_aside.contains(&event) {
                    cells.set_base(index, item.base);
                }
            }
        }
        let folder = Folder {
            path: path.to_owned(),
            options,
            stripes: Stripes::new(&cells),
            cells,
            tally,
            unresolved,
            slots: RwLock::new(slots),
            allocation: Mutex::new(Allocation { names, free }),
            _lock: lock,
        };
        Ok((folder, pushes))
    }

    pub(super) fn slots(&self) -> RwLockReadGuard<'_, Slots> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots_mut(&self) -> RwLockWriteGuard<'_, Slots> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocation(&self) -> MutexGuard<'_, Allocation> {
        self.allocation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slots of these counters, which are made if the folder does not have them: then this writes to disk.
    pub(super) fn find_or_give(&self, namespace: &str, counters: &[&str]) -> Result<Vec<Arc<Slot>>, LocalError> {
        let find = |counter: &&str| self.slots().get(namespace)?.get(*counter).cloned();
        if let Some(found) = counters.iter().map(find).collect() {
            return Ok(found);
        }
        for counter in counters {
            check_names(namespace, counter)?;
        }
        let mut allocation = self.allocation();
        let mut slots: Vec<Option<Arc<Slot>>> = counters.iter().map(find).collect();
        // In the order of the call, each once.
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut given: Vec<Given> = Vec::new();
        for (counter, slot) in counters.iter().zip(&slots) {
            if slot.is_none() && !places.contains_key(counter) {
                let Some(place) = allocation.free.len().checked_sub(1 + given.len()) else {
                    return Err(LocalError::Full { slots_max: self.options.slots_max });
                };
                let (namespace, slot) = (namespace.to_owned(), allocation.free[place]);
                places.insert(counter, given.len());
                given.push(Given { slot, namespace, counter: (*counter).to_owned() });
            }
        }
        for Given { slot, .. } in &given {
            // That of the counter that had the slot before.
            self.cells.set_pushed_ms(*slot as usize, 0);
        }
        self.options.steps.reach("before names are written");
        allocation.names.give(&given).when("write names to", &self.path)?;
        self.cells.set_names_mark(allocation.names.mark());
        self.options.steps.reach("names are written");
        let rest = allocation.free.len() - given.len();
        allocation.free.truncate(rest);
        let made: Vec<Arc<Slot>> = given
            .into_iter()
            .map(|Given { slot, namespace, counter }| {
                Arc::new(Slot::new(slot, namespace, counter, self.cells.total(slot as usize), 0))
            })
            .collect();
        let mut all = self.slots_mut();
        let of_namespace = all.entry(namespace.to_owned()).or_default();
        of_namespace.extend(made.iter().map(|slot| (slot.counter.clone(), slot.clone())));
        drop(all);
        for (counter, slot) in counters.iter().zip(&mut slots) {
            *slot = slot.take().or_else(|| Some(made[places[counter]].clone()));
        }
        Ok(slots.into_iter().flatten().collect())
    }

    /// Frees the slots of counters that were not used for a time or that the service has forgotten (L3). A counter with a handle, or with
    /// adds that are not pushed, stays. Counters of a namespace with a push that has not ended stay, too.
    pub(super) fn free_unused(&self, is_being_pushed: impl Fn(&str) -> bool) -> Result<(), LocalError> {
        let mut allocation = self.allocation();
        let mut freed: Vec<Arc<Slot>> = Vec::new();
        let now = Instant::now();
        let mut all = self.slots_mut();
        for (_, slots) in all.iter_mut().filter(|(namespace, _)| !is_being_pushed(namespace)) {
            // Handles are cloned from others or under the lock of `slots`, so this number does not rise from 1 meanwhile.
            let unused = slots.extract_if(|_, slot| {
                // If this is the only reference, what the last handle has added is visible from here on.
                let has_handle = Arc::get_mut(slot).is_none();
                let total = self.cells.total(slot.index as usize);
                let mut state = slot.state();
                if has_handle || total != state.seen_total {
                    (state.used_at, state.seen_total) = (now, total);
                }
                let is_idle = state.is_gone || now.duration_since(state.used_at) >= self.options.idle();
                !has_handle && is_idle && self.cells.unpushed(slot.index as usize) == 0
            });
            freed.extend(unused.map(|(_, slot)| slot));
        }
        all.retain(|_, slots| !slots.is_empty());
        drop(all);
        if freed.is_empty() && !allocation.names.is_long() {
            return Ok(());
        }
        if let Err(error) = self.free(&mut allocation, &freed) {
            let mut slots = self.slots_mut();
            for slot in freed {
                slots.entry(slot.namespace.clone()).or_default().insert(slot.counter.clone(), slot);
            }
            return Err(error);
        }
        // The slots are free, whatever happens to the list of names.
        self.shorten_names(&mut allocation);
        Ok(())
    }

    /// The next counter of a slot begins with nothing to push: base and cells are equal, also on disk. After an error none of the slots is
    /// free.
    fn free(&self, allocation: &mut Allocation, freed: &[Arc<Slot>]) -> Result<(), LocalError> {
        self.sync()?;
        if !freed.is_empty() {
            let freed: Vec<Given> = freed.iter().map(|slot| given(slot)).collect();
            allocation.names.free(&freed).when("write names to", &self.path)?;
            self.cells.set_names_mark(allocation.names.mark());
            allocation.free.extend(freed.iter().map(|name| name.slot));
            debug_assert!(is_each_once(&allocation.free), "two counters would get the same slot");
        }
        self.options.steps.reach("slots are freed");
        Ok(())
    }

    /// Writes the list of names again, if most of it are names that are gone. If this fails, the list is only longer than it could be, and
    /// the next round tries again. The mark of the list must be on disk.
    fn shorten_names(&self, allocation: &mut Allocation) {
        let names = &mut allocation.names;
        if !names.is_long() {
            return;
        }
        let all: Vec<Given> = self.slots().values().flat_map(HashMap::values).map(|slot| given(slot)).collect();
        let shortened = names.shorten(&all).when("write names to", &self.path);
        self.options.steps.reach("names are written again");
        // While the new name may not be on disk, a loss of power can bring back the list of before. So the mark of that list stays until
        // the next append, which first writes the name to disk.
        if shortened.is_ok() && names.sync_name().is_ok() {
            self.cells.set_names_mark(names.mark());
        }
        if shortened.is_err() {
            Tally::count(&self.tally.names_failures);
        }
        self.tally.latest(|latest| latest.names_error = shortened.err().map(|error| error.to_string()));
    }

    /// Whether some counter has adds that are not pushed.
    pub(super) fn has_unpushed(&self) -> bool {
        self.slots().values().flat_map(HashMap::values).any(|slot| self.cells.unpushed(slot.index as usize) != 0)
    }

    /// Writes the cells to disk.
    pub(super) fn sync(&self) -> Result<(), LocalError> {
        // What is added from here on may be missing.
        let begin = Instant::now();
        let result = self.cells.sync().when("write", &self.path);
        if result.is_err() {
            Tally::count(&self.tally.sync_failures);
        }
        self.tally.latest(|latest| {
            if result.is_ok() {
                latest.synced_at = begin;
            }
            latest.sync_error = result.as_ref().err().map(ToString::to_string);
        });
        if result.is_ok() {
            self.options.steps.reach("cells are on disk");
        }
        result
    }

    /// Writes to disk which files the folder has.
    pub(super) fn sync_files(&self) -> Result<(), LocalError> {
        files::sync_folder(&self.path).when("write", &self.path)?;
        self.options.steps.reach("files are on disk");
        Ok(())
    }

    pub(super) fn stats(&self) -> Stats {
        let slots = self.slots();
        let all = || slots.values().flat_map(HashMap::values);
        let pulled = all().map(|slot| slot.state().reading(0, &self.options)).filter(|read| read.pulled_at.is_some());
        let (mut error_bound_max, mut error_bounds_unknown) = (None, 0);
        for reading in pulled {
            match reading.error_bound {
                Some(bound) => error_bound_max = error_bound_max.max(Some(bound)),
                None => error_bounds_unknown += 1,
            }
        }
        self.tally.read(all().count() as u64, error_bound_max, error_bounds_unknown)
    }
}

fn given(slot: &Slot) -> Given {
    Given { slot: slot.index, namespace: slot.namespace.clone(), counter: slot.counter.clone() }
}

fn is_each_once(slots: &[u32]) -> bool {
    let mut seen = HashSet::with_capacity(slots.len());
    slots.iter().all(|slot| seen.insert(slot))
}

/// Makes the files of a new folder. `cells` comes last: a process that dies before has made nothing.
fn create(path: &Path, options: &LocalOptions) -> Result<(), LocalError> {
    if Names::exist_in(path)? {
        return Err(LocalError::damaged(&path.join("cells"), "the file is missing"));
    }
    let folder_id = uuid::Uuid::new_v4().as_u64_pair().0;
    let mark = Names::create(path, folder_id)?;
    Cells::create(path, folder_id, options.slots_max, options.stripes_max, mark)
}
