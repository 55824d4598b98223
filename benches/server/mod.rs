//! A server of the binary, for benchmarks of what its clients see.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server of the binary, which is stopped when this value is dropped.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts a server on a data directory with further arguments, and waits until it is ready.
    pub fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::start_binary(Path::new(env!("CARGO_BIN_EXE_proscenium")), dir, arguments)
    }

    /// The same, with another binary.
    pub fn start_binary(binary: &Path, dir: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--data-dir"])
            .arg(dir)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("the server says its address");
        let address = line.rsplit("http://").next().expect("an address").trim().to_owned();
        let server = Self { child, address };
        while !server.request("GET /readyz", "").starts_with("HTTP/1.1 200") {
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    pub fn request(&self, line: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).expect("the server listens");
        let head = format!("{line} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        let length = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        socket.write_all(format!("{head}{length}").as_bytes()).expect("the server reads");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("the server answers");
        answer
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = Command::new("kill").arg(self.child.id().to_string()).status().and_then(|_| self.child.wait());
        assert!(stopped.is_ok_and(|status| status.success()), "the server stops");
    }
}
