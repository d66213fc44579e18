// gRPC calls as frame streams, and the channel settings that both ends share. Private to lib/transport/grpc.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/transport/frame_stream.h"

namespace fusionllm::transport {

using ServerStream = grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

// gRPC and Abseil number their codes alike.
inline absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}
inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// Windows for 1 Gb/s x 100 ms, frames of 64 MiB, keepalive that the other side permits. `name`: whom a TLS certificate must name.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, absl::string_view name,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                           std::chrono::milliseconds keepalive);
void ConfigureServer(grpc::ServerBuilder& builder, std::chrono::milliseconds keepalive);

// The names in the caller's certificate; empty without mutual TLS.
std::vector<std::string> AuthenticatedNames(const grpc::ServerContext& context);

// A call made here. An END frame ends it with the status in the frame (over a relay).
class CallStream : public FrameStream {
 public:
  CallStream(std::shared_ptr<grpc::Channel> channel, const char* method, const std::vector<std::pair<std::string, std::string>>& metadata);
  ~CallStream() override;

  bool Write(const Frame& frame) override;
  bool Read(Frame* frame) override;
  void CloseWrites() override;
  void Cancel() override;
  absl::Status Finish() override;
  // Why Read() returned false, when that was for what had come.
  const absl::Status& read_error() const { return read_error_; }

 private:
  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
  bool finished_ = false;
  bool ended_ = false;  // by an END frame; guarded by the rule that one thread reads
  absl::Status read_error_;
};

// A call that a peer made.
class ServedStream : public FrameStream {
 public:
  ServedStream(grpc::ServerContext* context, ServerStream* stream) : context_(context), stream_(stream) {}

  bool Write(const Frame& frame) override;
  bool Read(Frame* frame) override;
  void CloseWrites() override {}  // the call's status ends it
  void Cancel() override { context_->TryCancel(); }
  absl::Status Finish() override { return read_error_; }

 private:
  grpc::ServerContext* context_;
  ServerStream* stream_;
  absl::Status read_error_;
};

// The final status of an answering side, as a frame.
Frame EndFrame(const absl::Status& status);
absl::Status StatusOfEnd(const Frame& frame);

}  // namespace fusionllm::transport
