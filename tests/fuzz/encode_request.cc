// The decoder of EncodeRequest against protobuf's parser; those of the other requests to
// EncoderService, which read the same kinds of fields, do no harm.

#include "server/codec/rerank_codec.h"
#include "server/codec/token_codec.h"
#include "tests/fuzz/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;
  server::twin::CompareInput({data, size}, server::twin::CompareEncode);
  const grpc::Slice slice(data, size);
  const grpc::ByteBuffer bytes(&slice, 1);
  server::DecodedRerank rerank;
  (void)server::DecodeRerankRequest(bytes, server::twin::Regions(), {}, &rerank);
  server::DecodedEncode tokenize, detokenize;
  (void)server::DecodeTokenizeRequest(bytes, &tokenize);
  (void)server::DecodeDetokenizeRequest(bytes, &detokenize);
  return 0;
}
