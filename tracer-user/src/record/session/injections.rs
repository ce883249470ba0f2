//! Shims that are being put into processes, each by a thread of its own: a process decides itself how long
//! that takes, and neither the reading of rings nor other processes wait for it.
//!
//! The main thread does what needs the BPF programs: the injecting thread asks for it, and waits for the answer.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;

use tracer_common::shim::Layout;

use crate::{
    discover::Subject, foreign, inject::InjectError, probe::Attachment,
    record::connection::Connection,
};

/// The largest number of threads at the same time; further processes wait until one of these is done.
const MOST: usize = 64;
/// The largest number of these for the processes of one user, whose slow processes do not delay other users'.
const MOST_OF_A_USER: usize = MOST / 4;
/// A failure that took this long counts as a timeout, whatever the error is.
const SLOW: Duration = Duration::from_secs(5);
/// The wait before another attempt when one has timed out in a process, whatever the process executes.
const PAUSE: Duration = Duration::from_secs(60);

/// The memory and the probe that a shim needs before it runs.
pub struct Prepared {
    /// The shared memory.
    pub connection: Connection,
    /// The probe at its dispatch site.
    pub site: Attachment,
}

/// The memory and the file that a process has provided for its shim.
pub struct Handover {
    /// An empty memfd, and the sizes that it is to get.
    pub memory: OwnedFd,
    pub layout: Layout,
    /// The place of the probe at its dispatch site: a file that the thread holds open, and an offset.
    pub file: PathBuf,
    pub offset: u64,
}

/// A shim records.
pub struct Recording {
    /// The time for which one thread of the process was stopped.
    pub stopped: Duration,
    /// When the process was looked at, and when its shim answered, ns of CLOCK_BOOTTIME.
    pub looked_ns: u64,
    pub answered_ns: u64,
}

/// How an injection ended.
pub enum Outcome {
    /// The process has not loaded the HSA runtime, or has not initialized it.
    NotYet,
    /// The process is stopped, frozen or traced, and may go on later.
    Held(String),
    /// The process is a forked child that cannot use its parent's GPU.
    Forked,
    /// The shim records.
    Recording(Recording),
}

/// Why a process gets its shim now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// The process is being attached to. If GPU times are insisted on, it is not traced without a shim.
    Attaching,
    /// The process is traced, and has loaded the runtime meanwhile.
    Later,
}

/// A message of an injecting thread.
pub enum Event {
    /// The process has provided the memory for its shim: the main thread has to prepare it.
    Handed(Handover, Sender<anyhow::Result<()>>),
    /// The thread is done.
    Done(Box<FinishedInjection>),
}

/// A thread that is done.
pub struct FinishedInjection {
    pub subject: Arc<Subject>,
    pub occasion: Occasion,
    pub result: anyhow::Result<Outcome>,
    /// The memory and the probe that were prepared for the shim.
    pub prepared: Option<Prepared>,
    /// When the process executed another program meanwhile, ns of CLOCK_BOOTTIME.
    pub executed_ns: Option<u64>,
}

/// The channel by which a thread reaches the main thread.
pub struct MainThread(Sender<Message>);

enum Message {
    Handed(Handover, Sender<anyhow::Result<()>>),
    Done(anyhow::Result<Outcome>),
}

impl MainThread {
    /// Has the main thread prepare the memory and the probe, and waits until that is done.
    pub fn prepare(&self, handover: Handover) -> anyhow::Result<()> {
        let (answer, result) = mpsc::channel();
        let over = || anyhow!("the recording has ended");
        self.0.send(Message::Handed(handover, answer)).map_err(|_| over())?;
        result.recv().map_err(|_| over())?
    }
}

struct Running {
    subject: Arc<Subject>,
    /// Processes whose user cannot be determined count as one user's.
    user: Option<u32>,
    began: Instant,
    occasion: Occasion,
    messages: Receiver<Message>,
    prepared: Option<Prepared>,
    executed_ns: Option<u64>,
}

/// Whether an injection failed because the process took too long.
fn is_by_time(error: &anyhow::Error, took: Duration) -> bool {
    took >= SLOW || error.downcast_ref().is_some_and(InjectError::is_by_time)
}

/// The threads that are at work, by their processes.
#[derive(Default)]
pub struct Injections {
    running: BTreeMap<u32, Running>,
    /// Processes, by number and start, in which an injection has timed out, and when.
    failed: BTreeMap<(u32, u64), Instant>,
}

impl Injections {
    /// Whether any thread is at work.
    pub fn are_any(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether a process has to wait: a thread is at work for it already, too many threads are at work in all or for
    /// its user, or an injection into it has timed out not long ago.
    pub fn has_to_wait(&self, subject: &Subject) -> bool {
        let failed = self.failed.get(&(subject.pid(), subject.started()));
        self.running.contains_key(&subject.pid())
            || self.running.len() >= MOST
            || failed.is_some_and(|at| at.elapsed() < PAUSE)
            || self.running.len() >= MOST_OF_A_USER && {
                let user = foreign::real_user(subject.pid());
                let theirs = self.running.values().filter(|running| running.user == user);
                theirs.count() >= MOST_OF_A_USER
            }
    }

    /// Has a new thread run `inject`.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn start(
        &mut self,
        subject: &Arc<Subject>,
        occasion: Occasion,
        inject: impl FnOnce(&Subject, &MainThread) -> anyhow::Result<Outcome> + Send + 'static,
    ) -> io::Result<()> {
        let (sender, messages) = mpsc::channel();
        let theirs = Arc::clone(subject);
        thread::Builder::new().name("roctap-inject".to_owned()).spawn(move || {
            let main_thread = MainThread(sender);
            let result = inject(&theirs, &main_thread);
            // Nobody listens any more when the recording has ended.
            let _ = main_thread.0.send(Message::Done(result));
        })?;
        let subject = Arc::clone(subject);
        let (user, began) = (foreign::real_user(subject.pid()), Instant::now());
        let (prepared, executed_ns) = (None, None);
        let running = Running { subject, user, began, occasion, messages, prepared, executed_ns };
        self.running.insert(running.subject.pid(), running);
        Ok(())
    }

    /// Takes at most one message of each thread, and removes the threads that are done.
    pub fn events(&mut self) -> Vec<(u32, Event)> {
        let (mut events, mut done) = (Vec::new(), Vec::new());
        for (&pid, running) in &self.running {
            match running.messages.try_recv() {
                Ok(Message::Handed(handover, answer)) => {
                    events.push((pid, Event::Handed(handover, answer)));
                }
                Ok(Message::Done(result)) => done.push((pid, result)),
                Err(TryRecvError::Disconnected) => {
                    done.push((pid, Err(anyhow!("the thread that was to do it has failed"))));
                }
                Err(TryRecvError::Empty) => {}
            }
        }
        for (pid, result) in done {
            let Some(running) = self.running.remove(&pid) else { continue };
            let Running { subject, began, occasion, prepared, executed_ns, .. } = running;
            if result.as_ref().is_err_and(|error| is_by_time(error, began.elapsed())) {
                self.failed.retain(|_, at| at.elapsed() < PAUSE);
                self.failed.insert((pid, subject.started()), Instant::now());
            }
            let done = FinishedInjection { subject, occasion, result, prepared, executed_ns };
            events.push((pid, Event::Done(Box::new(done))));
        }
        events
    }

    /// The process that a thread is at work for.
    pub fn subject(&self, pid: u32) -> Option<Arc<Subject>> {
        self.running.get(&pid).map(|running| Arc::clone(&running.subject))
    }

    /// The memory and the probe for the shim of process `pid` are ready.
    pub fn prepared(&mut self, pid: u32, prepared: Prepared) {
        if let Some(running) = self.running.get_mut(&pid) {
            running.prepared = Some(prepared);
        }
    }

    /// Process `pid` executed another program.
    pub fn executed(&mut self, pid: u32, time_ns: u64) {
        if let Some(running) = self.running.get_mut(&pid) {
            running.executed_ns = Some(time_ns);
        }
    }

    /// Takes what the main thread has prepared for the threads that are still at work.
    pub fn take_prepared(&mut self) -> Vec<(u32, Prepared)> {
        let running = self.running.iter_mut();
        running.filter_map(|(&pid, running)| Some((pid, running.prepared.take()?))).collect()
    }

    /// Updates the heartbeat in the prepared memories: their shims see that they will be read.
    pub fn beat(&self) {
        let prepared = self.running.values().filter_map(|running| running.prepared.as_ref());
        prepared.for_each(|prepared| prepared.connection.beat());
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::shim::{BackupReader, SharedMemory};

    fn process() -> (Child, Arc<Subject>) {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let subject = Arc::new(Subject::open(child.id()).unwrap());
        (child, subject)
    }

    fn next(injections: &mut Injections) -> (u32, Event) {
        loop {
            if let Some(event) = injections.events().pop() {
                return event;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// One process keeps its own thread waiting: the other process gets its shim meanwhile.
    #[test]
    fn nobody_waits_for_another_process() {
        let mut injections = Injections::default();
        let ((mut slow, subject), (mut quick, other)) = (process(), process());
        let (release, released) = mpsc::channel::<()>();
        let wait = move |_: &Subject, _: &MainThread| {
            let _ = released.recv();
            Ok(Outcome::NotYet)
        };
        injections.start(&subject, Occasion::Attaching, wait).unwrap();
        assert!(injections.has_to_wait(&subject) && !injections.has_to_wait(&other));
        let hand = |_: &Subject, main_thread: &MainThread| {
            let (memory, file) = (std::fs::File::open("/dev/null")?.into(), PathBuf::new());
            main_thread.prepare(Handover { memory, layout: Layout::DEFAULT, file, offset: 7 })?;
            Ok(Outcome::Forked)
        };
        injections.start(&other, Occasion::Later, hand).unwrap();
        let (pid, Event::Handed(handover, answer)) = next(&mut injections) else { panic!("done") };
        assert_eq!((pid, handover.offset), (other.pid(), 7));
        answer.send(Ok(())).unwrap();
        let (pid, Event::Done(done)) = next(&mut injections) else { panic!("handed") };
        assert!(pid == other.pid() && matches!(done.result, Ok(Outcome::Forked)));
        // A failure reaches the main thread, and so does the time of an exec that happened meanwhile.
        let fail = |_: &Subject, main_thread: &MainThread| {
            let (memory, file) = (std::fs::File::open("/dev/null")?.into(), PathBuf::new());
            main_thread.prepare(Handover { memory, layout: Layout::DEFAULT, file, offset: 0 })?;
            Ok(Outcome::NotYet)
        };
        injections.start(&other, Occasion::Later, fail).unwrap();
        injections.executed(other.pid(), 5);
        let (_, Event::Handed(_, answer)) = next(&mut injections) else { panic!("done") };
        answer.send(Err(anyhow!("no"))).unwrap();
        let (_, Event::Done(done)) = next(&mut injections) else { panic!("handed") };
        assert_eq!(
            (done.result.err().unwrap().to_string(), done.executed_ns),
            ("no".into(), Some(5))
        );
        assert!(injections.are_any());
        drop(release);
        let (pid, Event::Done(_)) = next(&mut injections) else { panic!("handed") };
        assert!(pid == subject.pid() && !injections.are_any());
        for child in [&mut slow, &mut quick] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    /// What was prepared for an injection that is not done is handed over when the recording ends: the shim may record
    /// already.
    #[test]
    fn what_was_prepared_is_there_when_the_recording_ends() {
        let mut injections = Injections::default();
        let (mut child, subject) = process();
        let (release, released) = mpsc::channel::<()>();
        let wait = move |_: &Subject, _: &MainThread| {
            let _ = released.recv();
            Ok(Outcome::NotYet)
        };
        injections.start(&subject, Occasion::Later, wait).unwrap();
        assert!(injections.take_prepared().is_empty());
        let memory = SharedMemory::create(Layout { rings: 1, ring_bytes: 4096 }).unwrap();
        let connection = Connection::to(subject.pid(), memory, 0..1, &BackupReader::default());
        injections.prepared(subject.pid(), Prepared { connection, site: Attachment::default() });
        let taken: Vec<u32> = injections.take_prepared().into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(taken, [subject.pid()]);
        drop(release);
        let (_, Event::Done(done)) = next(&mut injections) else { panic!("handed") };
        assert!(done.prepared.is_none());
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn one_users_slow_processes_leave_places_to_others() {
        let mut injections = Injections::default();
        let mut processes: Vec<_> = (0..=MOST_OF_A_USER).map(|_| process()).collect();
        let (_, waiting) = &processes[MOST_OF_A_USER];
        let mut releases = Vec::new();
        for (_, subject) in &processes[..MOST_OF_A_USER] {
            assert!(!injections.has_to_wait(waiting));
            let (release, released) = mpsc::channel::<()>();
            releases.push(release);
            let wait = move |_: &Subject, _: &MainThread| {
                let _ = released.recv();
                Ok(Outcome::NotYet)
            };
            injections.start(subject, Occasion::Later, wait).unwrap();
        }
        assert!(injections.has_to_wait(waiting));
        let own = Some(rustix::process::getuid().as_raw());
        assert!(injections.running.values().all(|running| running.user == own));
        // One of the threads is taken to be for another user.
        injections.running.first_entry().unwrap().get_mut().user = None;
        assert!(!injections.has_to_wait(waiting));
        drop(releases);
        for (child, _) in &mut processes {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn who_was_waited_for_in_vain_is_not_tried_again_soon() {
        let mut injections = Injections::default();
        let ((mut slow, subject), (mut quick, other)) = (process(), process());
        let late = |_: &Subject, _: &MainThread| {
            Err(InjectError::Late { what: "the shim's answer", within: SLOW }.into())
        };
        injections.start(&subject, Occasion::Later, late).unwrap();
        next(&mut injections);
        injections.start(&other, Occasion::Later, |_, _| Err(anyhow!("no"))).unwrap();
        next(&mut injections);
        injections.executed(subject.pid(), 5);
        assert!(injections.has_to_wait(&subject) && !injections.has_to_wait(&other));
        assert!(is_by_time(&anyhow!("no"), SLOW));
        for child in [&mut slow, &mut quick] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_thread_that_fails_is_told() {
        let mut injections = Injections::default();
        let (mut child, subject) = process();
        let panics = |_: &Subject, _: &MainThread| panic!("on purpose");
        injections.start(&subject, Occasion::Later, panics).unwrap();
        let (_, Event::Done(done)) = next(&mut injections) else { panic!("handed") };
        assert!(done.result.is_err());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
