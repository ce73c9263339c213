//! Tests of the engine over the oracle.
