#include "lib/transport/grpc/relay.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/method_handler.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/transport/grpc/frame_bytes.h"
#include "lib/transport/grpc/grpc_streams.h"
#include "lib/transport/grpc/relay_names.h"
#include "proto/fusionllm/v1/peer.grpc.pb.h"

namespace fusionllm::transport {
namespace {

constexpr std::chrono::milliseconds kCancelPoll{100};  // synchronous handlers do not see that their call was cancelled
constexpr std::chrono::seconds kFarewell{2};           // for the second half of a pair to end after the first

absl::StatusOr<std::string> Metadata(const grpc::ServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end() || found->second.empty() || found->second.size() > 253) {
    return absl::InvalidArgumentError(absl::StrCat("the call has no metadata ", key));
  }
  return std::string(found->second.data(), found->second.size());
}

absl::StatusOr<std::string> CallerName(const grpc::ServerContext& context, bool require_certificate) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::string name, Metadata(context, kRelayCaller));
  const std::vector<std::string> names = AuthenticatedNames(context);
  if (names.empty() && require_certificate) {
    return absl::UnauthenticatedError(absl::StrCat("caller calls itself ", name, " but shows no certificate"));
  }
  if (names.empty() || std::find(names.begin(), names.end(), name) != names.end()) return name;
  return absl::UnauthenticatedError(absl::StrCat("caller calls itself ", name, " but its certificate is for ", absl::StrJoin(names, ", ")));
}

// Two streams that belong together. Each handler uses the other's stream until both are done.
struct Call {
  std::string to;
  grpc::ServerContext* dial_context = nullptr;
  ServerStream* dial = nullptr;
  grpc::ServerContext* answer_context = nullptr;
  ServerStream* answer = nullptr;
  bool dial_done = false;
  bool answer_done = false;
};

struct Listener {
  std::deque<v1::Incoming> incoming;
  bool replaced = false;
};

}  // namespace

class Relay::Service : public grpc::Service {
 public:
  explicit Service(RelayOptions options) : options_(std::move(options)) {
    using grpc::internal::RpcMethod;
    AddMethod(new grpc::internal::RpcServiceMethod(
        kRelayListen, RpcMethod::SERVER_STREAMING,
        new grpc::internal::ServerStreamingHandler<Service, v1::ListenRequest, v1::Incoming>(
            [](Service* self, grpc::ServerContext* context, const v1::ListenRequest*, grpc::ServerWriter<v1::Incoming>* writer) {
              return self->Enter(*context, [&] { return self->Listen(*context, *writer); });
            },
            this)));
    AddStream(kRelayDial, &Service::Dial);
    AddStream(kRelayAnswer, &Service::Answer);
  }

  std::vector<std::string> endpoints() const {
    base::MutexLock lock(mu_);
    std::vector<std::string> names;
    for (const auto& [name, listener] : listeners_) names.push_back(name);
    return names;
  }

  void Shutdown() {
    base::MutexLock lock(mu_);
    stopping_ = true;
    for (auto& [id, call] : calls_) {
      call->dial_context->TryCancel();
      if (call->answer_context != nullptr) call->answer_context->TryCancel();
    }
    changed_.notify_all();
  }

 private:
  void AddStream(const char* method, absl::Status (Service::*handler)(grpc::ServerContext&, ServerStream&)) {
    AddMethod(new grpc::internal::RpcServiceMethod(method, grpc::internal::RpcMethod::BIDI_STREAMING,
                                                   new grpc::internal::BidiStreamingHandler<Service, grpc::ByteBuffer, grpc::ByteBuffer>(
                                                       [handler](Service* self, grpc::ServerContext* context, ServerStream* stream) {
                                                         return self->Enter(*context, [&] { return (self->*handler)(*context, *stream); });
                                                       },
                                                       this)));
  }

  template <typename Handle>
  grpc::Status Enter(const grpc::ServerContext& context, const Handle& handle) const {
    std::shared_ptr<void> entered;
    if (options_.enter) {
      absl::StatusOr<std::shared_ptr<void>> may = options_.enter(context);
      if (!may.ok()) return ToGrpc(may.status());
      entered = *std::move(may);
    }
    return ToGrpc(handle());
  }

  absl::Status Listen(grpc::ServerContext& context, grpc::ServerWriter<v1::Incoming>& writer) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string name, CallerName(context, options_.require_certificate));
    const auto me = std::make_shared<Listener>();
    base::UniqueLock lock(mu_);
    if (auto& listener = listeners_[name]; listener != nullptr) listener->replaced = true;
    listeners_[name] = me;
    me->incoming.emplace_back();  // an empty one says that the caller can be dialled now
    changed_.notify_all();
    bool alive = true;
    while (alive && !me->replaced && !stopping_ && !context.IsCancelled()) {
      if (me->incoming.empty()) {
        changed_.wait_for(lock, kCancelPoll);
        continue;
      }
      const v1::Incoming incoming = std::move(me->incoming.front());
      me->incoming.pop_front();
      lock.unlock();
      alive = writer.Write(incoming);
      lock.lock();
    }
    if (me->replaced) return absl::AbortedError(absl::StrCat("another instance of ", name, " listens now"));
    listeners_.erase(name);
    return absl::UnavailableError("the relay is closing");
  }

  absl::Status Dial(grpc::ServerContext& context, ServerStream& stream) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string from, CallerName(context, options_.require_certificate));
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string to, Metadata(context, kRelayPeer));
    const auto call = std::make_shared<Call>();
    call->to = to;
    call->dial_context = &context;
    call->dial = &stream;
    base::UniqueLock lock(mu_);
    const auto listener = listeners_.find(to);
    if (stopping_ || listener == listeners_.end())
      return absl::UnavailableError(absl::StrCat("no endpoint ", to, " is connected to the relay"));
    const std::string id = std::to_string(++last_call_);
    calls_[id] = call;
    v1::Incoming incoming;
    incoming.set_call(id);
    incoming.set_from(from);
    listener->second->incoming.push_back(std::move(incoming));
    changed_.notify_all();
    const auto deadline = std::chrono::steady_clock::now() + options_.answer_timeout;
    while (call->answer == nullptr && !stopping_ && !context.IsCancelled() && std::chrono::steady_clock::now() < deadline) {
      changed_.wait_for(lock, kCancelPoll);
    }
    if (call->answer == nullptr || stopping_) {
      call->dial_done = true;
      Release(id, *call, lock);
      return absl::UnavailableError(absl::StrCat(to, " did not answer the relay"));
    }
    lock.unlock();
    grpc::ByteBuffer bytes;
    while (stream.Read(&bytes) && call->answer->Write(bytes)) {
    }
    call->answer->Write(EncodeFrame(EndFrame(absl::OkStatus())));
    lock.lock();
    call->dial_done = true;
    Release(id, *call, lock);
    return absl::UnavailableError(absl::StrCat("the relay has lost ", to));  // what an END frame said goes before this
  }

  absl::Status Answer(grpc::ServerContext& context, ServerStream& stream) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string name, CallerName(context, options_.require_certificate));
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string id, Metadata(context, kRelayCall));
    base::UniqueLock lock(mu_);
    const auto found = calls_.find(id);
    if (found == calls_.end() || found->second->to != name || found->second->answer != nullptr || found->second->dial_done || stopping_) {
      return absl::NotFoundError(absl::StrCat("no peer waits for ", name, " to answer"));
    }
    const std::shared_ptr<Call> call = found->second;
    call->answer_context = &context;
    call->answer = &stream;
    changed_.notify_all();
    lock.unlock();
    grpc::ByteBuffer bytes;
    bool ended = false;
    while (!ended && stream.Read(&bytes)) {
      const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
      ended = frame.ok() && frame->type == FrameType::kEnd;
      if (!call->dial->Write(bytes)) break;
    }
    lock.lock();
    call->answer_done = true;
    if (!ended) call->dial_context->TryCancel();
    Release(id, *call, lock);
    return absl::OkStatus();
  }

  // Waits until both handlers have let go of both streams.
  void Release(const std::string& id, Call& call, std::unique_lock<std::mutex>& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    changed_.notify_all();
    const auto both_done = [&] { return call.dial_done && (call.answer_done || call.answer == nullptr); };
    if (!changed_.wait_for(lock, kFarewell, both_done)) {
      call.dial_context->TryCancel();
      if (call.answer_context != nullptr) call.answer_context->TryCancel();
      changed_.wait(lock, both_done);
    }
    calls_.erase(id);
  }

  const RelayOptions options_;
  mutable base::Mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Listener>> listeners_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

Relay::Relay(RelayOptions options) : service_(std::make_unique<Service>(std::move(options))) {}
Relay::~Relay() { Shutdown(); }
grpc::Service* Relay::service() const { return service_.get(); }
std::vector<std::string> Relay::endpoints() const { return service_->endpoints(); }
void Relay::Shutdown() { service_->Shutdown(); }

}  // namespace fusionllm::transport
