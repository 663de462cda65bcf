//! x
mod bar;
mod exit;
mod failure;
mod input;
mod interrupt;
mod key;
mod output;
mod size;
fn main() {}
