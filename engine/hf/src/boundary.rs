//! Shared by every exported function: errors become owned C strings, and panics are caught.

use std::any::Any;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};
use std::sync::Once;

/// Any error; only its text crosses the boundary.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Runs `body`; null when it succeeds, else the error's or the panic's text.
pub fn guarded(body: impl FnOnce() -> Result<(), Error>) -> *mut c_char {
    // A panic becomes an error text, so Rust must not print it to stderr as well.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| set_hook(Box::new(|_| {})));
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => format!("internal error: {}", panic_text(&*panic)),
    };
    // A zero byte would end the C string, and a line break the log line.
    CString::new(message.replace('\0', "\\0").replace(['\n', '\r'], " "))
        .unwrap_or_default()
        .into_raw()
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "panic"
    }
}

/// The bytes at `data`.
///
/// # Safety
/// `data` must be readable for `size` bytes during `'a`; it may be null when `size` is 0.
pub unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// # Safety
/// `error` must come from `guarded` and not have been freed; null is ignored.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_free_error(error: *mut c_char) {
    if !error.is_null() {
        drop(CString::from_raw(error));
    }
}
