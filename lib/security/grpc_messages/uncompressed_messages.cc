#include "lib/security/grpc_messages/uncompressed_messages.h"

#include <grpc/compression.h>
#include <grpc/grpc.h>

namespace fusionllm::security {
namespace {

constexpr int kIdentityAlone = 1 << GRPC_COMPRESS_NONE;

}  // namespace

void RefuseCompressedMessages(grpc::ServerBuilder& builder) {
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

void RefuseCompressedMessages(grpc::ChannelArguments& arguments) {
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, kIdentityAlone);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

}  // namespace fusionllm::security
