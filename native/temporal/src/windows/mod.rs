//! Windows: `lmerge/temporal/windows` is the definition.
//!
//! Modules that run here read no ends of events (aggregates and ranked rows), so a window closes at its end, and a group
//! needs the states of its windows but few of its events. Each kind of window has data structures of its own:
//!
//! | module | what |
//! |---|---|
//! | `kinds` | kinds of windows and the choices for them |
//! | `groups` | groups by their keys |
//! | `grid` | hopping and tumbling windows: one table for all groups, and the windows of each start together |
//! | `panes` | hopping windows that overlap: an event is a difference at its first window and behind its last |
//! | `kept` | events in which windows of a grid can still begin |
//! | `snapshot` | snapshot windows: an event is a difference at its start and at its end |
//! | `snapshot_group` | the windows of one group of them, before and behind its front |
//! | `count`, `session` | count windows and sessions |
//! | `event` | the changes of a batch as windows take them |
//! | `output` | results that are emitted, and the batch that they make |
//! | `operator` | time, the output's stable point, feedback and state |

pub mod count;
pub mod event;
pub mod grid;
pub mod groups;
pub mod kept;
pub mod kinds;
pub mod operator;
pub mod output;
pub mod panes;
pub mod session;
pub mod snapshot;
mod snapshot_group;
pub mod spans;

pub use kinds::{Form, Grid, WindowKind};
pub use operator::{WindowOperator, WindowSpec};
