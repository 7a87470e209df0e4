//! The head of a response, and the request for it.

use pelago_wire::blocks::BLOCKS_TYPE;

use super::failure::DownloadFailure;
use super::{CrowdPlan, DownloadForm};

/// Most bytes of a head.
const HEAD_LIMIT: usize = 16 << 10;

/// The parsed head of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResponseHead {
    /// Bytes of the body, if it says so.
    pub(super) length: Option<u64>,
    pub(super) form: DownloadForm,
    /// Bytes of the head itself; the body follows.
    pub(super) bytes: usize,
}

/// Returns the request for one of the paths. In HTTP/1.0 the end of the connection is the end of a
/// body without a length, so that none comes in chunks.
pub(super) fn request(plan: &CrowdPlan, path: usize) -> String {
    let accept = match plan.form {
        DownloadForm::Plain => "*/*",
        DownloadForm::Blocks => BLOCKS_TYPE,
    };
    let path = &plan.paths[path];
    format!("GET {path} HTTP/1.0\r\nHost: {}\r\nAccept: {accept}\r\n\r\n", plan.server)
}

/// Parses a head; `None` if more bytes are needed.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<ResponseHead>, DownloadFailure> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() > HEAD_LIMIT { Err(DownloadFailure::Head) } else { Ok(None) };
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| DownloadFailure::Head)?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    match status {
        Some(200) => {}
        Some(status) => return Err(DownloadFailure::Status(status)),
        None => return Err(DownloadFailure::Head),
    }
    let mut head = ResponseHead { length: None, form: DownloadForm::Plain, bytes: end + 4 };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                head.length = Some(value.parse().map_err(|_| DownloadFailure::Head)?);
            }
            "content-type" if value == BLOCKS_TYPE => head.form = DownloadForm::Blocks,
            "transfer-encoding" => return Err(DownloadFailure::Head),
            _ => {}
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_length_and_form() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nX: y\r\n\r\nbody";
        let head = ResponseHead { length: Some(12), form: DownloadForm::Plain, bytes: 45 };
        assert_eq!(parse(text).unwrap(), Some(head));
        assert_eq!(parse(&text[..44]).unwrap(), None);
        let text = format!("HTTP/1.0 200 OK\r\ncontent-type: {BLOCKS_TYPE}\r\n\r\n");
        assert_eq!(parse(text.as_bytes()).unwrap().unwrap().form, DownloadForm::Blocks);
    }

    #[test]
    fn other_statuses_and_chunks_are_failures() {
        let status = parse(b"HTTP/1.1 503 Busy\r\n\r\n").unwrap_err();
        assert!(matches!(status, DownloadFailure::Status(503)), "{status}");
        assert!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(parse(b"220 ready\r\n\r\n").is_err());
        assert!(parse(&[b'x'; HEAD_LIMIT + 1]).is_err());
    }
}
