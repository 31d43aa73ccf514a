//! The reference readers of tokenizer.json and safetensors behind the C interface of castor_hf.h,
//! which documents every function.

mod assemble;
mod boundary;
mod cut;
mod emitted;
mod growth;
mod offsets;
mod progress;
mod safetensors_file;
mod tokenizer;
