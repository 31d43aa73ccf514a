// --kernel: an attention kernel and its parameters, in the words of kernel.proto with dashes:
// NAME[,PARAMETER=VALUE...], such as "improved-clustered,topk=64". The names, ranges and defaults
// come from the contract's descriptors, so new ones need no code here.
#pragma once

#include <google/protobuf/message.h>

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"

namespace castor::cli {

// Without the flag `kernel` stays empty: the server's choice, or the model's own kernel.
void AddKernelFlag(CLI::App* command, std::string* kernel);

// Throws CLI::ValidationError for text that --kernel does not take. Reads no files.
void CheckKernel(const std::string& kernel);

// Set the request's kernel, and read the files that its parameters name. Throw as CheckKernel does,
// and UsageError for a file that cannot be read.
void ApplyKernel(const std::string& kernel, v1::AttendRequest* request);
void ApplyKernel(const std::string& kernel, v1::EncodeRequest* request);

// Whether the text names this kernel, or sets this parameter; both are written with dashes.
bool IsKernel(std::string_view kernel, std::string_view name);
bool HasParameter(std::string_view kernel, std::string_view parameter);

// The parameters of a kernel's message, such as v1::Clustered, as --kernel takes them:
// "clusters=100,clustering=hash". Leaves out zeros and tensors.
std::string ParametersText(const google::protobuf::Message& kernel);

}  // namespace castor::cli
