#include "services/broker/executor_sessions.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/job/name.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/renewal.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/peer_name.h"
#include "services/peer_address.h"

namespace fusionllm::services {
namespace {

constexpr size_t kMaxTextBytes = 1024;  // of a field of Hello
constexpr auto kShutdownTimeout = std::chrono::seconds(3);

v1::BrokerMessage Refuse(const std::string& reason, const std::string& message) {
  v1::BrokerMessage refusal;
  refusal.mutable_refusal()->set_reason(reason);
  refusal.mutable_refusal()->set_message(message);
  return refusal;
}

// The machine reason of a refusal travels in front of the sentence, see ValidateHello.
std::pair<std::string, std::string> SplitReason(const absl::Status& status) {
  const std::string text(status.message());
  const size_t colon = text.find(": ");
  return {text.substr(0, colon), text.substr(colon + 2)};
}

}  // namespace

ExecutorSessions::ExecutorSessions(ExecutorSessionsOptions options, Handlers handlers)
    : options_(std::move(options)), handlers_(std::move(handlers)) {}

absl::Status ExecutorSessions::ValidateHello(const grpc::ServerContext& context, const v1::ExecutorMessage& first) const {
  if (!first.has_hello()) return absl::InvalidArgumentError("MalformedHandshake: the first message must be Hello");
  const v1::Hello& hello = first.hello();
  if (hello.name().empty() || hello.name().size() > 253)
    return absl::InvalidArgumentError("MalformedHandshake: executor names have 1 to 253 bytes");
  if (hello.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("IncompatibleProtocol: executor %s speaks protocol version %d (build %s), this broker %d (build %s)", hello.name(),
                        hello.protocol_version(), hello.build_version(), kProtocolVersion, options_.build_version));
  }
  if (options_.require_certificate && !IsCertifiedAs(context, hello.name())) {
    return absl::UnauthenticatedError(
        absl::StrFormat("WrongCertificate: the certificate presented was not issued to executor '%s' by this job's CA", hello.name()));
  }
  // Names of certificates are; without certificates anything may be said.
  if (const absl::Status name = security::CheckProcessName(hello.name()); !name.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("MalformedHandshake: ", std::string(name.message())));
  }
  // Others dial these.
  for (const std::string& address : {hello.data_address(), hello.site_address()}) {
    if (address.empty()) continue;
    if (const absl::Status status = CheckPeerAddress(hello.name(), address); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("MalformedHandshake: executor ", hello.name(), ": ", status.message()));
    }
  }
  const size_t longest = std::max({hello.build_version().size(), hello.backend().size(), hello.device_description().size()});
  if (longest > kMaxTextBytes) return absl::InvalidArgumentError("MalformedHandshake: a field of Hello has more than 1 KiB");
  // Without one of its own a machine's site has its name.
  if (!hello.site().empty() && hello.site() != hello.name() && !job::IsName(hello.site())) {
    return absl::InvalidArgumentError(absl::StrCat("MalformedHandshake: executor ", hello.name(), " says '",
                                                   absl::CHexEscape(hello.site().substr(0, 64)),
                                                   "' for its site (--site), which is no name: ", job::kNameRule));
  }
  if (options_.attempt.has_value() && hello.has_attempt() && hello.attempt() < *options_.attempt) {
    return absl::FailedPreconditionError(absl::StrFormat("%s: executor %s is of attempt %d of the job, this broker leads attempt %d",
                                                         kSupersededAttempt, hello.name(), hello.attempt(), *options_.attempt));
  }
  return absl::OkStatus();
}

void ExecutorSessions::Enqueue(Session& session, v1::BrokerMessage message) {
  const base::MutexLock lock(session.mutex);
  if (session.closed) return;
  session.queue.push_back(std::move(message));
  session.news.notify_all();
}

void ExecutorSessions::Close(Session& session) {
  const base::MutexLock lock(session.mutex);
  session.closed = true;
  session.news.notify_all();
}

// Ends a stream whose place another has taken. What it says from now on does not count.
void ExecutorSessions::CloseReplaced(Session& session) {
  {
    const base::MutexLock lock(session.delivery);
    session.current = false;
  }
  Close(session);
  CancelCall(session);
}

void ExecutorSessions::CancelCall(Session& session) {
  const base::MutexLock lock(session.mutex);
  if (session.context != nullptr) session.context->TryCancel();
}

absl::Status ExecutorSessions::Join(const v1::Hello& hello, const std::shared_ptr<Session>& session) {
  // This broker is the one that was left behind: the executor finds its own at the same address when it is there.
  if (options_.attempt.has_value() && hello.has_attempt() && hello.attempt() > *options_.attempt) {
    return absl::UnavailableError(absl::StrCat("this broker leads attempt ", *options_.attempt, " of the job"));
  }
  const base::MutexLock registration(registration_mutex_);
  std::shared_ptr<Session> replaced;
  {
    const base::MutexLock lock(mutex_);
    if (shutting_down_) return absl::UnavailableError("the broker is shutting down");
    std::shared_ptr<Session>& present = sessions_[hello.name()];
    // It may come again when the newer one has gone; a clock that was set back must not shut an executor out for good.
    if (present != nullptr && present->incarnation > hello.incarnation()) {
      return absl::UnavailableError(absl::StrCat("a newer process attends as executor ", hello.name()));
    }
    replaced = std::exchange(present, session);
  }
  if (replaced != nullptr) CloseReplaced(*replaced);  // its end has perhaps not been noticed yet
  handlers_.on_joined(hello);
  return absl::OkStatus();
}

void ExecutorSessions::Leave(const v1::Hello& hello, const std::shared_ptr<Session>& session, const std::string& why) {
  const base::MutexLock registration(registration_mutex_);
  {
    const base::MutexLock lock(mutex_);
    const auto found = sessions_.find(hello.name());
    if (found == sessions_.end() || found->second != session) return;  // replaced
    sessions_.erase(found);
  }
  handlers_.on_left(hello.name(), hello.incarnation(), why);
}

void ExecutorSessions::WriteQueue(Session& session, grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>& stream) {
  while (true) {
    v1::BrokerMessage next;
    {
      base::UniqueLock lock(session.mutex);
      session.news.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(session.mutex) { return session.closed || !session.queue.empty(); });
      if (session.queue.empty()) break;
      next = std::move(session.queue.front());
      session.queue.pop_front();
    }
    if (!stream.Write(next)) break;
  }
  const base::MutexLock lock(session.mutex);
  session.closed = session.drained = true;
  session.news.notify_all();
}

absl::Status ExecutorSessions::ReceiveHello(const grpc::ServerContext& context,
                                            grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>& stream,
                                            v1::ExecutorMessage& first) const {
  // Before anything is read: outsiders get no room for a message.
  if (options_.require_certificate && !HasCertificate(context)) {
    return absl::UnauthenticatedError("WrongCertificate: no certificate of this job's CA was presented; a join token buys one");
  }
  if (!stream.Read(&first)) return absl::InvalidArgumentError("MalformedHandshake: the stream ended without Hello, or Hello took too long");
  return ValidateHello(context, first);
}

grpc::Status ExecutorSessions::Attend(grpc::ServerContext* context,
                                      grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>* stream) {
  ExecutorCallLimiter::Permit permit;
  if (options_.calls != nullptr) {
    absl::StatusOr<ExecutorCallLimiter::Permit> entered = options_.calls->Enter(*context);
    if (!entered.ok()) return {grpc::StatusCode::RESOURCE_EXHAUSTED, std::string(entered.status().message())};
    permit = *std::move(entered);
  }
  const auto session = std::make_shared<Session>(context);
  const absl::Cleanup context_ends = [&] {
    const base::MutexLock lock(session->mutex);
    session->context = nullptr;
  };
  // Ends the refusal as well, of a peer that does not read it.
  grpc::Alarm hello_alarm;
  hello_alarm.Set(std::chrono::system_clock::now() + options_.hello_timeout, [session](bool is_over) {
    if (is_over) CancelCall(*session);
  });
  v1::ExecutorMessage message;
  if (const absl::Status status = ReceiveHello(*context, *stream, message); !status.ok()) {
    const auto [reason, sentence] = SplitReason(status);
    base::Log(base::LogLevel::kWarning, absl::StrCat("refused ", context->peer(), ": ", std::string(status.message())));
    stream->Write(Refuse(reason, sentence));
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()), sentence);
  }
  hello_alarm.Cancel();
  const v1::Hello hello = message.hello();
  session->incarnation = hello.incarnation();
  session->certificate_pem = CertificateOf(*context).pem;
  v1::BrokerMessage welcome;
  *welcome.mutable_welcome() = options_.welcome;
  if (options_.add_to_welcome) options_.add_to_welcome(hello, *welcome.mutable_welcome());
  Enqueue(*session, std::move(welcome));  // before anybody can send it orders
  if (const absl::Status status = Join(hello, session); !status.ok()) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, std::string(status.message()));
  }
  base::Log(base::LogLevel::kInfo, absl::StrCat("executor ", hello.name(), " attends from ", context->peer()));
  std::thread writer([&session, stream] { WriteQueue(*session, *stream); });
  std::string why = "its connection to the broker broke";
  while (stream->Read(&message)) {
    const base::MutexLock lock(session->delivery);
    if (!session->current) break;
    if (message.has_leaving()) why = "it was asked to end";
    handlers_.on_message(hello.name(), hello.incarnation(), message);
  }
  Close(*session);
  writer.join();
  Leave(hello, session, why);
  return grpc::Status::OK;
}

grpc::Status ExecutorSessions::Enroll(grpc::ServerContext* context, const v1::EnrollRequest* request, v1::EnrollResponse* response) {
  if (request->protocol_version() != kProtocolVersion) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        absl::StrFormat("protocol version %d, this broker speaks %d", request->protocol_version(), kProtocolVersion));
  }
  absl::StatusOr<v1::EnrollResponse> answer = handlers_.on_enroll(*request);
  if (!answer.ok()) {
    base::Log(base::LogLevel::kWarning, absl::StrCat("did not enroll ", context->peer(), ": ", std::string(answer.status().message())));
    return grpc::Status(static_cast<grpc::StatusCode>(answer.status().code()), std::string(answer.status().message()));
  }
  base::Log(base::LogLevel::kInfo, absl::StrCat("enrolled ", answer->name(), " at ", context->peer()));
  *response = *std::move(answer);
  return grpc::Status::OK;
}

grpc::Status ExecutorSessions::Renew(grpc::ServerContext* context, const v1::RenewRequest*, v1::RenewResponse* response) {
  const PeerCertificate shown = CertificateOf(*context);
  // One that was turned away keeps its certificate until it ends, and no longer.
  if (!IsConnected(shown.name)) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                        absl::StrCat("no executor '", shown.name, "' attends, so its certificate is not renewed"));
  }
  if (!OwnsSession(shown.name, shown.pem)) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                        absl::StrCat("executor '", shown.name, "' attends with another key, so this certificate is not renewed"));
  }
  if (handlers_.on_renew == nullptr) {
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "this broker renews no certificates: what started the run does");
  }
  absl::StatusOr<v1::RenewResponse> answer = handlers_.on_renew(shown.pem);
  if (!answer.ok()) return grpc::Status(static_cast<grpc::StatusCode>(answer.status().code()), std::string(answer.status().message()));
  base::Log(base::LogLevel::kInfo, absl::StrCat("renewed the certificate of ", shown.name));
  *response = *std::move(answer);
  return grpc::Status::OK;
}

std::shared_ptr<ExecutorSessions::Session> ExecutorSessions::SessionOf(const std::string& name) {
  const base::MutexLock lock(mutex_);
  const auto found = sessions_.find(name);
  return found == sessions_.end() ? nullptr : found->second;
}

bool ExecutorSessions::OwnsSession(const std::string& name, const std::string& certificate_pem) {
  const std::shared_ptr<Session> session = SessionOf(name);
  return session != nullptr && security::HaveSameKey(session->certificate_pem, certificate_pem);
}

void ExecutorSessions::Acknowledge(const std::string& name, uint64_t incarnation, uint64_t sequence) {
  if (sequence == 0) return;
  const std::shared_ptr<Session> session = SessionOf(name);
  if (session == nullptr || session->incarnation != incarnation) return;
  const base::MutexLock lock(session->mutex);
  if (session->closed) return;
  // An acknowledgement stands for those before it: one at most waits, however slowly this executor reads.
  const auto waiting =
      std::find_if(session->queue.begin(), session->queue.end(), [](const v1::BrokerMessage& message) { return message.has_ack(); });
  v1::BrokerMessage& ack = waiting == session->queue.end() ? session->queue.emplace_back() : *waiting;
  ack.mutable_ack()->set_sequence(std::max(ack.ack().sequence(), sequence));
  session->news.notify_all();
}

bool ExecutorSessions::Send(const std::string& name, v1::BrokerMessage message) {
  const std::shared_ptr<Session> session = SessionOf(name);
  if (session == nullptr) return false;
  Enqueue(*session, std::move(message));
  return true;
}

bool ExecutorSessions::IsConnected(const std::string& name) {
  const base::MutexLock lock(mutex_);
  // As certificates are compared.
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& session) { return absl::EqualsIgnoreCase(session.first, name); });
}

void ExecutorSessions::Shutdown(const std::string& reason, bool failed) {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    const base::MutexLock lock(mutex_);
    shutting_down_ = true;
    for (const auto& [name, session] : sessions_) sessions.push_back(session);
  }
  for (const auto& session : sessions) {
    v1::BrokerMessage shutdown;
    shutdown.mutable_shutdown()->set_reason(reason);
    shutdown.mutable_shutdown()->set_failed(failed);
    Enqueue(*session, std::move(shutdown));
    Close(*session);
  }
  const auto deadline = std::chrono::steady_clock::now() + kShutdownTimeout;
  for (const auto& session : sessions) {
    base::UniqueLock lock(session->mutex);
    session->news.wait_until(lock, deadline, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(session->mutex) { return session->drained; });
  }
}

}  // namespace fusionllm::services
