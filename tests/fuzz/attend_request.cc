// The decoder of AttendRequest against protobuf's parser.

#include "castor/v1/attention.pb.h"
#include "server/codec/attention_codec.h"
#include "tests/fuzz/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor::server;
  twin::CompareInput({data, size}, [](std::string_view bytes, std::span<const size_t> slices) {
    return twin::Compare<wire::AttendRequest, castor::v1::AttendRequest>(
        bytes, slices, [](const grpc::ByteBuffer& buffer) {
          DecodedAttend out;
          return DecodeAttendRequest(buffer, twin::Regions(), &out);
        });
  });
  return 0;
}
