// gRPC inflates a compressed message whole before it compares its size with the limit: 100 kB on the wire can take 100 MB, and 64 MiB the
// whole memory. Nothing here sends compressed messages (tensors have codecs of their own), so every server and every channel refuses them.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace fusionllm::security {

// A call with a compressed message ends with UNIMPLEMENTED, and the message is not inflated.
void RefuseCompressedMessages(grpc::ServerBuilder& builder);
// An answer that is compressed stays so, and is then no message that could be read.
void RefuseCompressedMessages(grpc::ChannelArguments& arguments);

}  // namespace fusionllm::security
