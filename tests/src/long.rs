//! How much a random, crash or soak test does: less in each run of `./test` than in `./test --long`.

/// The amount of this run: the second one where `TALLYSTONE_TEST_LONG` is set, as `./test --long` does.
pub fn amount<T>(of_each_run: T, of_a_long_run: T) -> T {
    if is_long() { of_a_long_run } else { of_each_run }
}

/// Whether `TALLYSTONE_TEST_LONG` is set.
pub fn is_long() -> bool {
    std::env::var_os("TALLYSTONE_TEST_LONG").is_some()
}
