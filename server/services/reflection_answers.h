// The answers of server reflection: names of services, and files of protobuf's generated pool.
// Constant after construction; any thread may call anything.
#pragma once

#include <google/protobuf/descriptor.h>

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "grpc/reflection/v1/reflection.pb.h"

namespace castor::server {

class ReflectionAnswers {
 public:
  using Request = grpc::reflection::v1::ServerReflectionRequest;
  using Response = grpc::reflection::v1::ServerReflectionResponse;
  // The files that a stream has had.
  using Sent = std::set<const google::protobuf::FileDescriptor*>;

  // `services`: what list_services lists. Encodes every file that the process holds, so that
  // no answer has to.
  explicit ReflectionAnswers(std::vector<std::string> services);

  // The answer, which may be an error. Of the files that the one asked for needs, those not in
  // `sent` come along, and are entered there; that file comes always, and first.
  Response Answer(const Request& request, Sent* sent) const;

 private:
  // Null file: there is none.
  void AddFiles(const google::protobuf::FileDescriptor* file, Sent* sent, Response* response) const;

  const std::vector<std::string> services_;
  std::unordered_map<const google::protobuf::FileDescriptor*, std::string> files_;  // encoded
};

}  // namespace castor::server
