//! `highorder` as people run it: each verb, each kind of input, each way to end. One program compiles in a fraction of
//! the time of twenty.

#[path = "../common/mod.rs"]
mod common;

mod attacks;
mod attainable;
mod calibrate;
mod documents;
mod exports;
mod faults;
mod help;
mod inputs;
mod list;
mod map;
mod meaning;
mod outputs;
mod replay;
mod reproduce;
mod run;
mod snapshot;
mod trace;
mod validate;
mod watch;
mod what_if;
