//! The terminal of `watch`: another screen, keys as they come, and all as it was afterwards.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

/// xterm's sequences (ctlseqs), which every terminal of today knows: the other screen, without a cursor; and back.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const TO_LINE_END: &str = "\x1b[K";
/// Where nobody says how large it is.
const USUAL: (usize, usize) = (80, 24);

/// What a key, or a new size, asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The end.
    Quit,
    /// The screen again.
    Redraw,
}

/// Columns and lines.
pub(super) fn size() -> (usize, usize) {
    terminal_size::terminal_size_of(io::stdout())
        .map_or(USUAL, |(width, height)| (width.0.into(), height.0.into()))
}

/// The terminal, as it was when dropped.
pub(super) struct Terminal {
    former: Termios,
    drawn: Cell<(usize, usize)>,
}

impl Terminal {
    /// Switches to the other screen and has keys told without Enter.
    pub(super) fn begin() -> io::Result<Self> {
        let stdin = io::stdin();
        let former = tcgetattr(&stdin)?;
        let mut mode = former.clone();
        // Signals stay: Ctrl-C is one.
        mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &mode)?;
        let terminal = Self { former, drawn: Cell::new((0, 0)) };
        write(BEGIN)?;
        Ok(terminal)
    }

    /// Draws lines over what was drawn.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        self.drawn.set(size());
        let mut text = HOME.to_owned();
        for (i, line) in lines.iter().enumerate() {
            text.push_str(if i == 0 { "" } else { "\r\n" });
            text.push_str(line);
            text.push_str(TO_LINE_END);
        }
        write(&text)
    }

    /// What has been asked for, if anything.
    pub(super) fn key(&self) -> Option<Key> {
        let mut stdin = io::stdin();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_there = {
            let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
            poll(&mut waited, Some(&now)).is_ok_and(|nr| nr > 0)
        };
        if is_there {
            let mut keys = [0; 64];
            match stdin.read(&mut keys) {
                // Nobody can press a key any more.
                Ok(0) | Err(_) => return Some(Key::Quit),
                Ok(nr) if keys[..nr].iter().any(|key| matches!(key, b'q' | b'Q')) => {
                    return Some(Key::Quit);
                }
                Ok(_) => return Some(Key::Redraw),
            }
        }
        (size() != self.drawn.get()).then_some(Key::Redraw)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = write(END);
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.former);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
