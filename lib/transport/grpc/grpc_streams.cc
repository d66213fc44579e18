#include "lib/transport/grpc/grpc_streams.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_callback.h>
#include <grpcpp/impl/rpc_method.h>

#include "absl/strings/str_cat.h"
#include "lib/security/grpc_messages/uncompressed_messages.h"
#include "lib/transport/grpc/frame_bytes.h"

namespace fusionllm::transport {
namespace {

constexpr int kGrpcMessageBytesMax = (64 << 20) + 1024;  // a frame; RESOURCE_EXHAUSTED refuses more before it is read
constexpr int kWindowBytes = 16 << 20;
constexpr int kHttp2FrameBytes = 1 << 20;

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, absl::string_view name,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                           std::chrono::milliseconds keepalive) {
  const int keepalive_ms = static_cast<int>(keepalive.count());
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kGrpcMessageBytesMax);
  args.SetMaxSendMessageSize(kGrpcMessageBytesMax);
  args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  args.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);  // also the time that one attempt to connect may take
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // sessions resume by themselves
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection of its own for each peer
  args.SetSslTargetNameOverride(std::string(name));
  security::RefuseCompressedMessages(args);
  return grpc::CreateCustomChannel(address, credentials, args);
}

void ConfigureServer(grpc::ServerBuilder& builder, std::chrono::milliseconds keepalive) {
  const int keepalive_ms = static_cast<int>(keepalive.count());
  builder.SetMaxReceiveMessageSize(kGrpcMessageBytesMax);
  builder.SetMaxSendMessageSize(kGrpcMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Peers may be configured with another keepalive: none is too much ("too many pings" is what users of others meet).
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  security::RefuseCompressedMessages(builder);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error, not a second listener
}

std::vector<std::string> AuthenticatedNames(const grpc::ServerContext& context) {
  std::vector<std::string> names;
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return names;
  for (const grpc::string_ref& name : auth->GetPeerIdentity()) names.emplace_back(name.data(), name.size());
  return names;
}

CallStream::CallStream(std::shared_ptr<grpc::Channel> channel, const char* method,
                       const std::vector<std::pair<std::string, std::string>>& metadata)
    : channel_(std::move(channel)) {
  for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
  // What generated stubs do, with ByteBuffer in the place of a message.
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::BIDI_STREAMING, channel_);
  stream_.reset(grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(channel_.get(), rpc, &context_));
}

CallStream::~CallStream() {
  if (finished_) return;
  context_.TryCancel();
  CallStream::Finish().IgnoreError();
}

bool CallStream::Write(const Frame& frame) { return stream_->Write(EncodeFrame(frame)); }

bool CallStream::Read(Frame* frame) {
  grpc::ByteBuffer bytes;
  if (!read_error_.ok() || ended_ || !stream_->Read(&bytes)) return false;
  absl::StatusOr<Frame> decoded = DecodeFrame(bytes);
  if (decoded.ok() && decoded->type == FrameType::kEnd) {
    ended_ = true;
    read_error_ = Verify(*decoded).ok() ? StatusOfEnd(*decoded) : absl::DataLossError("corrupt end of stream");
    return false;
  }
  if (!decoded.ok()) {
    read_error_ = decoded.status();
    context_.TryCancel();
    return false;
  }
  *frame = *std::move(decoded);
  return true;
}

void CallStream::CloseWrites() { stream_->WritesDone(); }
void CallStream::Cancel() { context_.TryCancel(); }

absl::Status CallStream::Finish() {
  finished_ = true;
  if (ended_) context_.TryCancel();  // the relay's own status says nothing more
  const grpc::Status status = stream_->Finish();
  if (!read_error_.ok() || ended_) return read_error_;
  return FromGrpc(status);
}

bool ServedStream::Write(const Frame& frame) { return stream_->Write(EncodeFrame(frame)); }

bool ServedStream::Read(Frame* frame) {
  grpc::ByteBuffer bytes;
  if (!read_error_.ok() || !stream_->Read(&bytes)) return false;
  absl::StatusOr<Frame> decoded = DecodeFrame(bytes);
  read_error_ = decoded.status();
  if (decoded.ok()) *frame = *std::move(decoded);
  return read_error_.ok();
}

Frame EndFrame(const absl::Status& status) {
  Frame frame;
  frame.type = FrameType::kEnd;
  frame.sequence = static_cast<uint64_t>(status.code());
  if (!status.message().empty()) frame.payload.push_back(Payload::Of(std::string(status.message().substr(0, 4096))));
  Seal(frame);
  return frame;
}

absl::Status StatusOfEnd(const Frame& frame) {
  std::string message;
  for (const Payload& piece : frame.payload) message.append(piece.text().data(), piece.size());
  const uint64_t code = std::min<uint64_t>(frame.sequence, 16);
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace fusionllm::transport
