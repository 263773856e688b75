//! OpenMetrics over HTTP, one request at a time, each bounded in size and time.

use crate::openmetrics::CONTENT_TYPE;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Most bytes of a request that are read: a choice of ours, far above what a scraper sends.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// The longest that a client may take to send or to read a part.
const PATIENCE: Duration = Duration::from_secs(2);
/// Parts of a request that are waited for.
const PARTS_MAX: usize = 16;

/// Answers whoever waits at the door, and returns how many there were; does not wait for anybody.
///
/// `text` makes what is served at `/metrics`.
///
/// # Errors
/// The listener is broken. What goes wrong with one client is that client's.
pub fn answer(listener: &TcpListener, text: &mut dyn FnMut() -> String) -> io::Result<usize> {
    let mut nr = 0;
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                nr += 1;
                // It may be gone, or slow: that is no fault of ours.
                let _ = serve(client, text);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(nr),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens a door that nobody has to be waited at.
///
/// # Errors
/// The address cannot be listened at.
pub fn listen(address: &str) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn serve(mut client: TcpStream, text: &mut dyn FnMut() -> String) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let request = request(&mut client)?;
    let (status, kind, body) = match words(&request) {
        Some(("GET", "/metrics")) => ("200 OK", CONTENT_TYPE, text()),
        Some(("GET", "/")) => ("200 OK", "text/plain", "highorder watch: /metrics\n".to_owned()),
        Some(("GET", _)) => ("404 Not Found", "text/plain", "expected /metrics\n".to_owned()),
        Some(_) => ("405 Method Not Allowed", "text/plain", "expected GET\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "expected a request of HTTP\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// The head of a request, as far as it came.
fn request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    for _ in 0..PARTS_MAX {
        let nr = client.read(&mut part)?;
        request.extend_from_slice(&part[..nr]);
        let is_whole = request.windows(4).any(|end| end == b"\r\n\r\n");
        if nr == 0 || is_whole || request.len() >= REQUEST_BYTES_MAX {
            break;
        }
    }
    Ok(request)
}

/// Method and path of a request, without a query.
fn words(request: &[u8]) -> Option<(&str, &str)> {
    let line = request.split(|&b| b == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    let path = path.split('?').next()?;
    version.starts_with("HTTP/").then_some((method, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn asked(request: &'static str) -> String {
        let listener = listen("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        });
        while answer(&listener, &mut || "# EOF\n".to_owned()).unwrap() == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        client.join().unwrap()
    }

    #[test]
    fn metrics_are_served_and_nothing_else() {
        let metrics = asked("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text")
        );
        assert!(metrics.ends_with("\r\n\r\n# EOF\n"), "{metrics}");
        assert!(asked("GET /etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(asked("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(asked("hello").starts_with("HTTP/1.1 400 "));
    }
}
