// Frames to and from gRPC byte buffers without copying payloads. The bytes are those of the protobuf message fusionllm.v1.Frame.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "lib/transport/frame.h"

namespace fusionllm::transport {

// The buffer shares the payload.
grpc::ByteBuffer EncodeFrame(const Frame& frame);

// The frame's payload shares the buffer's slices. Errors as DecodeHeader(); INVALID_ARGUMENT: not the bytes of a Frame message.
absl::StatusOr<Frame> DecodeFrame(const grpc::ByteBuffer& bytes);

}  // namespace fusionllm::transport
