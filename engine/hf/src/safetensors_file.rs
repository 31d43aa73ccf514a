//! One safetensors file, read whole and checked.

use crate::boundary::{guarded, Error};
use safetensors::tensor::Metadata;
use safetensors::{SafeTensorError, SafeTensors};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::HashSet;
use std::ffi::{c_char, c_int};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::{fs, io, thread};

const LENGTH_BYTES: usize = 8; // of the header's length, at the start of the file

struct Entry {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    begin: usize, // into File::buffer
    end: usize,
}

pub struct File {
    buffer: Vec<u8>,
    tensors: Vec<Entry>, // in order of offset
}

/// Reads `size` bytes, even if the file grows meanwhile. Several threads share a large file: half of
/// the time goes to the buffer's page faults.
fn read(file: &fs::File, size: u64) -> Result<Vec<u8>, Error> {
    const MOST_THREADS: usize = 4;
    const LEAST_BYTES: usize = 32 << 20; // of a thread's part
    let size = usize::try_from(size)?;
    let mut buffer: Vec<u8> = Vec::new();
    buffer.try_reserve_exact(size)?;
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS));
    let part = LEAST_BYTES.max(size.div_ceil(threads));
    thread::scope(|scope| {
        let mut readers = Vec::new();
        for (i, bytes) in buffer.spare_capacity_mut()[..size]
            .chunks_mut(part)
            .enumerate()
        {
            // SAFETY: read_exact_at only writes.
            let bytes = unsafe { &mut *(bytes as *mut [MaybeUninit<u8>] as *mut [u8]) };
            let begin = (i * part) as u64;
            if begin + part as u64 >= size as u64 {
                file.read_exact_at(bytes, begin)?; // the last part, on this thread
            } else {
                let read = move || file.read_exact_at(bytes, begin);
                readers.push(thread::Builder::new().spawn_scoped(scope, read)?);
            }
        }
        for reader in readers {
            reader.join().map_err(|_| "cannot be read")??;
        }
        Ok(())
    })
    .map_err(|error: Error| match error.downcast_ref::<io::Error>() {
        Some(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
            "was cut short while it was read".into()
        }
        _ => error,
    })?;
    // SAFETY: all parts have been read.
    unsafe { buffer.set_len(size) };
    Ok(buffer)
}

/// The error, in words for a download that broke off or was never begun.
fn explain(error: SafeTensorError, buffer: &[u8]) -> Error {
    if buffer.starts_with(b"version https://git-lfs") {
        return "is a Git LFS pointer, not the weights: run git lfs pull".into();
    }
    let whole = match &error {
        SafeTensorError::HeaderTooSmall | SafeTensorError::InvalidHeaderLength => usize::MAX,
        SafeTensorError::MetadataIncompleteBuffer => {
            let length = u64::from_le_bytes(buffer[..LENGTH_BYTES].try_into().unwrap());
            let begin = LENGTH_BYTES + length as usize;
            match serde_json::from_slice::<Metadata>(&buffer[LENGTH_BYTES..begin]) {
                Ok(metadata) => begin.saturating_add(metadata.data_len()),
                Err(_) => return error.into(),
            }
        }
        _ => return error.into(),
    };
    let order = if buffer.len() < whole {
        "shorter"
    } else {
        "longer"
    };
    format!("is {order} than its header says: download it again").into()
}

/// The one check of a header that the reference reader lacks: no duplicate keys. JSON readers
/// disagree on which of two entries counts, so such a file has different weights in different
/// programs.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys).map(|()| UniqueKeys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            if let Some(twice) = seen.replace(key) {
                return Err(serde::de::Error::custom(format!(
                    "duplicate key \"{twice}\""
                )));
            }
        }
        Ok(())
    }
}

/// Refuses a header in which a tensor's name occurs twice.
fn check_unique_names(header: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<UniqueKeys>(header).map(|_| ())
}

fn parse(buffer: Vec<u8>) -> Result<File, Error> {
    let (header_size, metadata) =
        SafeTensors::read_metadata(&buffer).map_err(|error| explain(error, &buffer))?;
    let data_begin = LENGTH_BYTES + header_size;
    check_unique_names(&buffer[LENGTH_BYTES..data_begin])?;
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).ok_or("a tensor without an entry")?;
        tensors.push(Entry {
            dtype: format!("{:?}", info.dtype),
            shape: info.shape.iter().map(|&size| size as u64).collect(),
            begin: data_begin + info.data_offsets.0,
            end: data_begin + info.data_offsets.1,
            name,
        });
    }
    Ok(File { buffer, tensors })
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_safetensors_open(
    descriptor: c_int,
    size: u64,
    out: *mut *mut File,
) -> *mut c_char {
    guarded(|| {
        let file = ManuallyDrop::new(fs::File::from_raw_fd(descriptor)); // the caller's
        *out = Box::into_raw(Box::new(parse(read(&file, size)?)?));
        Ok(())
    })
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_safetensors_close(file: *mut File) {
    if !file.is_null() {
        drop(Box::from_raw(file));
    }
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_safetensors_count(file: *const File) -> usize {
    (*file).tensors.len()
}

/// A tensor as castor_hf.h lays it out.
#[repr(C)]
pub struct TensorView {
    name: *const u8,
    name_size: usize,
    dtype: *const u8,
    dtype_size: usize,
    shape: *const u64,
    dimensions: usize,
    data: *const u8,
    data_size: usize,
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_safetensors_get(
    file: *const File,
    index: usize,
    out: *mut TensorView,
) {
    let file = &*file;
    let entry = &file.tensors[index];
    let data = &file.buffer[entry.begin..entry.end];
    *out = TensorView {
        name: entry.name.as_ptr(),
        name_size: entry.name.len(),
        dtype: entry.dtype.as_ptr(),
        dtype_size: entry.dtype.len(),
        shape: entry.shape.as_ptr(),
        dimensions: entry.shape.len(),
        data: data.as_ptr(),
        data_size: data.len(),
    };
}
