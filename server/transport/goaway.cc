#include "server/transport/goaway.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>

#include <string_view>

// grpc_core::Server::SendGoaways(), which gRPC's library exports and no header of it declares.
// Weak: a library without it gives a null pointer.
extern "C" __attribute__((weak)) void CastorSendGoaways(grpc_server* server) __asm__(
    "_ZN9grpc_core6Server11SendGoawaysEv");

namespace castor::server {
namespace {

// A grpc_server is a grpc_core::Server up to here; later ones were not looked at.
bool IsKnown() { return std::string_view(grpc_version_string()).starts_with("29."); }

// Runs on this thread inside what gRPC calls an execution context, where its core may be called.
// The interface makes none for us, but destroys the bytes of a message in one.
void InsideGrpc(void (*run)(void*), void* argument) {
  static char byte = 0;
  grpc_slice slice = grpc_slice_new_with_user_data(&byte, 1, run, argument);
  grpc_byte_buffer* buffer = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_slice_unref(slice);
  grpc_byte_buffer_destroy(buffer);  // the last reference
}

}  // namespace

bool SendGoaways(grpc::Server& server) {
  if (CastorSendGoaways == nullptr || !IsKnown()) return false;
  InsideGrpc([](void* core) { CastorSendGoaways(static_cast<grpc_server*>(core)); },
             server.c_server());
  return true;
}

}  // namespace castor::server
