#include "server/services/reflection_answers.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>
#include <grpcpp/support/status_code_enum.h>

#include <algorithm>
#include <utility>

namespace castor::server {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

namespace {

// No file, type or symbol has a longer name. The pool looks for each prefix that ends at a dot,
// under its lock: with 60,000 dots, for most of a second.
constexpr size_t kMaxNameBytes = 512;

bool IsTooLong(const ReflectionAnswers::Request& request) {
  return std::max({request.file_by_filename().size(), request.file_containing_symbol().size(),
                   request.file_containing_extension().containing_type().size(),
                   request.all_extension_numbers_of_type().size()}) > kMaxNameBytes;
}

void SetError(grpc::StatusCode code, const char* message, ReflectionAnswers::Response* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(message);
}

const FileDescriptor* FileOfExtension(const std::string& type, int number) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const Descriptor* extended = pool.FindMessageTypeByName(type);
  if (extended == nullptr) return nullptr;
  const FieldDescriptor* extension = pool.FindExtensionByNumber(extended, number);
  return extension == nullptr ? nullptr : extension->file();
}

void AddExtensions(const std::string& type, ReflectionAnswers::Response* response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const Descriptor* extended = pool.FindMessageTypeByName(type);
  if (extended == nullptr) return SetError(grpc::NOT_FOUND, "no such type", response);
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(extended, &extensions);
  auto* answer = response->mutable_all_extension_numbers_response();
  answer->set_base_type_name(type);
  for (const FieldDescriptor* extension : extensions) {
    answer->add_extension_number(extension->number());
  }
}

}  // namespace

ReflectionAnswers::ReflectionAnswers(std::vector<std::string> services)
    : services_(std::move(services)) {
  std::vector<std::string> names;
  DescriptorPool::internal_generated_database()->FindAllFileNames(&names);
  for (const std::string& name : names) {
    const FileDescriptor* file = DescriptorPool::generated_pool()->FindFileByName(name);
    if (file == nullptr) continue;
    google::protobuf::FileDescriptorProto proto;
    file->CopyTo(&proto);
    files_[file] = proto.SerializeAsString();
  }
}

ReflectionAnswers::Response ReflectionAnswers::Answer(const Request& request, Sent* sent) const {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  if (IsTooLong(request)) {
    SetError(grpc::NOT_FOUND, "the name is too long", &response);
    return response;
  }
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      AddFiles(pool.FindFileByName(request.file_by_filename()), sent, &response);
      break;
    case Request::kFileContainingSymbol:
      AddFiles(pool.FindFileContainingSymbol(request.file_containing_symbol()), sent, &response);
      break;
    case Request::kFileContainingExtension: {
      const auto& extension = request.file_containing_extension();
      AddFiles(FileOfExtension(extension.containing_type(), extension.extension_number()), sent,
               &response);
      break;
    }
    case Request::kAllExtensionNumbersOfType:
      AddExtensions(request.all_extension_numbers_of_type(), &response);
      break;
    case Request::kListServices:
      for (const std::string& name : services_) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case Request::MESSAGE_REQUEST_NOT_SET:
      SetError(grpc::INVALID_ARGUMENT, "the request is empty", &response);
      break;
  }
  return response;
}

void ReflectionAnswers::AddFiles(const FileDescriptor* file, Sent* sent, Response* response) const {
  const auto found = files_.find(file);
  if (found == files_.end()) return SetError(grpc::NOT_FOUND, "no such file or symbol", response);
  sent->insert(file);
  auto* answer = response->mutable_file_descriptor_response();
  answer->add_file_descriptor_proto(found->second);
  std::vector<const FileDescriptor*> needed = {file};  // grows; a file is in it once
  for (size_t i = 0; i < needed.size(); ++i) {
    for (int d = 0; d < needed[i]->dependency_count(); ++d) {
      const FileDescriptor* dependency = needed[i]->dependency(d);
      if (std::find(needed.begin(), needed.end(), dependency) != needed.end()) continue;
      needed.push_back(dependency);
      const auto encoded = files_.find(dependency);
      if (encoded == files_.end() || !sent->insert(dependency).second) continue;
      answer->add_file_descriptor_proto(encoded->second);
    }
  }
}

}  // namespace castor::server
