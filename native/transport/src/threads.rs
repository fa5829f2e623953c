//! The threads that do the I/O of all channels of a process.

use std::sync::Mutex;

use tokio::runtime::{Builder, Handle, Runtime};

/// Enough for several fast streams; a publisher or a subscriber needs one.
const THREADS: usize = 1;

/// The threads, and the process that they belong to.
static THREADS_OF: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// The threads of this process, started if need be. After a fork the child has threads of its own: those of its parent
/// do not run in it, and what they held stays as it was.
///
/// # Errors
/// If the process may open no more files or threads.
///
/// # Panics
/// If a thread has panicked while it started the threads.
pub fn of_this_process() -> std::io::Result<Handle> {
    let process = std::process::id();
    let mut threads = THREADS_OF.lock().expect("no panic while it is held");
    if let Some((owner, runtime)) = *threads
        && owner == process
    {
        return Ok(runtime.handle().clone());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("lmerge-io")
        .enable_all()
        .build()?;
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    *threads = Some((process, runtime));
    Ok(runtime.handle().clone())
}
