// --kernel: an attention kernel and its parameters, in the words of kernel.proto with dashes:
// NAME[,PARAMETER=VALUE...], such as "improved-clustered,topk=64". Which there are, their ranges
// and defaults come from the contract's descriptors alone.
#pragma once

#include <google/protobuf/message.h>

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"

namespace castor::cli {

// `kernel` stays empty, the server's choice or the model's own, without the flag.
void AddKernelFlag(CLI::App* command, std::string* kernel);

// Throws CLI::ValidationError for what --kernel does not take. Reads no files.
void CheckKernel(const std::string& kernel);

// Set the request's kernel. Read the files named; throw as CheckKernel does, or UsageError when
// they cannot.
void ApplyKernel(const std::string& kernel, v1::AttendRequest* request);
void ApplyKernel(const std::string& kernel, v1::EncodeRequest* request);

// Whether it is `name`, which has dashes; or gives the parameter.
bool IsKernel(std::string_view kernel, std::string_view name);
bool HasParameter(std::string_view kernel, std::string_view parameter);

// What --kernel would take for a kernel's message, such as v1::Clustered, without what is zero:
// "clusters=100,clustering=hash". Tensors are left out.
std::string ParametersText(const google::protobuf::Message& kernel);

}  // namespace castor::cli
