#include "services/executor/data_plane.h"

#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/estimator/rate_fit.h"
#include "lib/transport/emulated_endpoint.h"
#include "lib/transport/shared_buckets.h"
#include "services/executor/route_endpoint.h"
#include "services/peer_address.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

using runtime::MessageKind;
using transport::MessageHeader;
using transport::Priority;

// Values of MessageHeader::direction beyond the runtime's kinds.
constexpr uint8_t kPing = 200;
constexpr uint8_t kPong = 201;
// Probes belong to no plan: their epoch outlives every CancelEpoch.
constexpr uint32_t kProbeEpoch = 0xFFFFFFFF;

constexpr size_t kAddressBytesMax = 512;
constexpr int kRoundTrips = 5;
constexpr int kTransfers = 3;
constexpr double kBeyondDisturbance = 1;  // s; what else goes on is short against this
constexpr size_t kSmallBytes = 8;
constexpr size_t kFirstTransferBytes = 128 << 10;
constexpr size_t kLastTransferBytes = 8 << 20;
constexpr double kLongEnoughSeconds = 0.1;  // a transfer that takes this long is long against timer noise
constexpr size_t kPongBytes = 8;
constexpr auto kProbeTimeout = std::chrono::seconds(30);

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Of chunks between replicas, those with negative numbers say what is called, or that it is over (lib/collective): they are small, and
// must not wait behind what they are about.
Priority PriorityOf(const runtime::MessageKey& key) {
  const MessageKind kind = key.kind;
  const bool small_and_urgent = kind == MessageKind::kReport || kind == MessageKind::kDecision || kind == MessageKind::kEvaluated ||
                                kind == MessageKind::kEvaluationSize ||
                                (kind == MessageKind::kReplica && (key.step < 0 || key.micro_batch < 0));
  if (small_and_urgent) return Priority::kControl;
  return kind == MessageKind::kPerUseGradient || kind == MessageKind::kReplica ? Priority::kParameterSync : Priority::kTensor;
}

runtime::MessageKey KeyOf(const MessageHeader& header) {
  return {.step = header.step,
          .kind = static_cast<MessageKind>(header.direction),
          .micro_batch = header.micro_batch,
          .id = static_cast<int32_t>(header.channel)};
}

transport::Payload Share(runtime::Payload bytes) {
  auto owner = std::make_shared<const runtime::Payload>(std::move(bytes));
  const std::span<const std::byte> view(*owner);
  return transport::Payload(std::move(owner), view);
}

}  // namespace

class DataPlane::Impl : public runtime::MessagePort {
 public:
  explicit Impl(DataPlaneOptions options) : options_(std::move(options)) {}

  absl::Status Listen(const Credentials& credentials) {
    if (!options_.advertised_address.empty()) FUSIONLLM_RETURN_IF_ERROR(base::CheckDialable(options_.advertised_address));
    FUSIONLLM_ASSIGN_OR_RETURN(const base::HostPort listening, base::SplitHostPort(options_.listen_address));
    transport::EndpointOptions endpoint_options;
    endpoint_options.name = options_.name;
    endpoint_options.job_hash = credentials.job_hash;
    endpoint_options.incarnation = options_.incarnation;
    endpoint_options.build_version = kBuildVersion;
    endpoint_options.admit = [this](absl::string_view from, const MessageHeader& header, uint64_t bytes) {
      return Admits(std::string(from), header, bytes);
    };
    job_hash_ = credentials.job_hash;
    grpc::EnableDefaultHealthCheckService(true);  // beside the peers' own service
    FUSIONLLM_ASSIGN_OR_RETURN(auto direct, transport::GrpcEndpoint::Create(endpoint_options, {.server_credentials = credentials.server,
                                                                                               .channel_credentials = credentials.channel,
                                                                                               .listen_address = options_.listen_address}));
    address_ = base::JoinHostPort(listening.host, absl::StrCat(direct->port()));
    if (!options_.advertised_address.empty()) {
      // A host that stands for any leads nowhere from a peer.
      if (!base::IsWildcardAddress(listening.host)) site_address_ = address_;
      address_ = options_.advertised_address;
    }
    std::unique_ptr<transport::GrpcRelayEndpoint> relay;
    if (!options_.relay_address.empty()) {
      FUSIONLLM_ASSIGN_OR_RETURN(relay, transport::GrpcRelayEndpoint::Create(
                                            endpoint_options, {.address = options_.relay_address, .credentials = credentials.channel}));
      if (!options_.reachable) address_ = absl::StrCat(kRelayPrefix, options_.name);
    }
    routes_ = std::make_shared<RouteEndpoint>(std::move(direct), std::move(relay));
    {
      const base::MutexLock lock(mutex_);
      endpoint_ = routes_;
    }
    Register(*routes_);
    return absl::OkStatus();
  }

  absl::Status Emulate(const job::LinkTable& links, const std::string& state_file) {
    FUSIONLLM_ASSIGN_OR_RETURN(auto buckets, transport::SharedBuckets::Open(state_file));
    transport::EmulationOptions emulation{.buckets = std::move(buckets), .seed = 1};
    for (const job::LinkTable::Place& place : links.devices()) {
      if (place.device.name == options_.name) continue;
      FUSIONLLM_ASSIGN_OR_RETURN(const job::EffectiveLink link, links.Between(options_.name, place.device.name));
      transport::EmulatedPath& path = emulation.paths[place.device.name];
      for (const job::LinkResource& resource : link.path) path.buckets.push_back(resource.name);
      path.latency_ns = link.latency.ns;
      path.jitter_ns = link.jitter.ns;
      path.loss = link.loss;
    }
    FUSIONLLM_ASSIGN_OR_RETURN(std::shared_ptr<transport::Endpoint> emulated,
                               transport::MakeEmulatedEndpoint(routes_, std::move(emulation)));
    Register(*emulated);
    const base::MutexLock lock(mutex_);
    endpoint_ = std::move(emulated);
    return absl::OkStatus();
  }

  void SetPeer(const std::string& name, const std::string& address, bool same_site, uint64_t incarnation) {
    {
      const base::MutexLock lock(mutex_);
      broken_.erase(name);
      if (same_site) {
        near_.insert(name);
      } else {
        near_.erase(name);
      }
    }
    Endpoint()->ForgetPreviousIncarnation(name, incarnation);
    routes_->SetPeerAddress(name, address);
  }

  absl::StatusOr<LinkMeasurement> Probe(const std::string& peer) {
    // The first exchange opens the connection and does not count.
    FUSIONLLM_RETURN_IF_ERROR(RoundTrip(peer, kSmallBytes).status());
    // Other traffic only lengthens a transfer: the least of a few counts.
    const auto least_of = [&](int times, size_t bytes) -> absl::StatusOr<estimator::TransferSample> {
      estimator::TransferSample sample{.bytes = static_cast<double>(bytes), .seconds = 1e9};
      for (int i = 0; i < times; ++i) {
        FUSIONLLM_ASSIGN_OR_RETURN(const double seconds, RoundTrip(peer, bytes));
        sample.seconds = std::min(sample.seconds, seconds);
        if (seconds >= kBeyondDisturbance) break;
      }
      return sample;
    };
    FUSIONLLM_ASSIGN_OR_RETURN(const estimator::TransferSample small, least_of(kRoundTrips, kSmallBytes));
    std::vector<estimator::TransferSample> samples = {small};
    for (size_t bytes = kFirstTransferBytes; bytes <= kLastTransferBytes; bytes *= 4) {
      FUSIONLLM_ASSIGN_OR_RETURN(samples.emplace_back(), least_of(kTransfers, bytes));
      if (samples.back().seconds - small.seconds >= kLongEnoughSeconds) break;
    }
    const estimator::TransferSample& largest = samples.back();
    const absl::StatusOr<estimator::LinkFit> fit = estimator::FitLink(samples);
    // A link that is too fast for these sizes to tell is as fast as the largest went.
    return LinkMeasurement{.rtt_s = small.seconds,
                           .bytes_per_s = fit.ok() ? fit->bytes_per_s : largest.bytes / std::max(1e-6, largest.seconds - small.seconds)};
  }

  runtime::MessagePort& Attach(uint32_t epoch, std::vector<std::string> peers, std::shared_ptr<runtime::Inbox> inbox,
                               std::function<void(const std::string&)> on_lost) {
    const base::MutexLock lock(mutex_);
    epoch_ = epoch;
    peers_ = std::move(peers);
    inbox_ = std::move(inbox);
    on_lost_ = std::move(on_lost);
    evaluation_bytes_.clear();
    refused_.clear();
    return *this;
  }

  void Detach(uint32_t epoch) {
    {
      const base::MutexLock lock(mutex_);
      if (epoch_ <= epoch) {
        inbox_.reset();
        on_lost_ = nullptr;
      }
    }
    Endpoint()->CancelEpoch(epoch + 1);
  }

  absl::Status Send(int to_stage, const runtime::MessageKey& key, runtime::Payload payload) override {
    MessageHeader header{.job_hash = job_hash_, .step = key.step, .micro_batch = key.micro_batch, .channel = static_cast<uint32_t>(key.id)};
    header.direction = static_cast<uint8_t>(key.kind);
    header.priority = PriorityOf(key);
    std::string peer;
    {
      const base::MutexLock lock(mutex_);
      if (inbox_ == nullptr) return absl::CancelledError("the plan epoch is over");
      header.epoch = epoch_;
      peer = peers_[to_stage];
      if (key.kind == MessageKind::kEvaluation) evaluation_bytes_[peer] += static_cast<int64_t>(payload.size());
    }
    return Endpoint()->Send(peer, header, Share(std::move(payload)));
  }

  transport::LinkStats stats(const std::string& peer) const { return Endpoint()->stats(peer); }
  int64_t evaluation_bytes(const std::string& peer) const {
    const base::MutexLock lock(mutex_);
    const auto found = evaluation_bytes_.find(peer);
    return found == evaluation_bytes_.end() ? 0 : found->second;
  }
  void Close() { Endpoint()->Close(); }
  const std::string& address() const { return address_; }
  const std::string& site_address() const { return site_address_; }

 private:
  // Where this peer reaches us.
  std::string AddressFor(const std::string& peer) const {
    const base::MutexLock lock(mutex_);
    return near_.contains(peer) && !site_address_.empty() ? site_address_ : address_;
  }

  // The worker's thread may be setting the emulation up while others send and cancel.
  std::shared_ptr<transport::Endpoint> Endpoint() const {
    const base::MutexLock lock(mutex_);
    return endpoint_;
  }

  void Register(transport::Endpoint& endpoint) {
    endpoint.SetReceiver([this](absl::string_view from, const MessageHeader& header, transport::Payload payload) {
      Receive(std::string(from), header, std::move(payload));
    });
    endpoint.SetPeerFailure([this](absl::string_view peer, const absl::Status& why) { PeerFailed(std::string(peer), why); });
  }

  // Of the present epoch, where that is the header's; null: the message is of none.
  std::shared_ptr<runtime::Inbox> InboxOf(const MessageHeader& header) const {
    const base::MutexLock lock(mutex_);
    return header.epoch == epoch_ ? inbox_ : nullptr;
  }

  // The transport has proved who `from` is; whether it may say this is what the plan tells.
  absl::Status Check(const runtime::Inbox& inbox, const std::string& from, const MessageHeader& header, uint64_t bytes) const {
    int place = 0;
    {
      const base::MutexLock lock(mutex_);
      place = static_cast<int>(std::find(peers_.begin(), peers_.end(), from) - peers_.begin());
      if (place == static_cast<int>(peers_.size())) return absl::PermissionDeniedError("it has no part in the plan with this stage");
    }
    return inbox.CheckDelivery(place, KeyOf(header), bytes);
  }

  bool Admits(const std::string& from, const MessageHeader& header, uint64_t bytes) {
    if (header.direction == kPing) return bytes <= kLastTransferBytes + kAddressBytesMax;
    if (header.direction == kPong) return bytes <= kPongBytes;
    if (header.direction >= runtime::kMessageKinds) return false;
    const std::shared_ptr<runtime::Inbox> inbox = InboxOf(header);
    if (inbox == nullptr) return false;  // of a plan that is over
    const absl::Status status = Check(*inbox, from, header, bytes);
    if (!status.ok()) Refuse(from, status);
    return status.ok();
  }

  // The true message still comes from whom the plan names; only a peer that fills this machine's memory ends the epoch.
  void Refuse(const std::string& from, const absl::Status& why) {
    if (absl::IsAlreadyExists(why)) return;
    bool is_first = false;
    {
      const base::MutexLock lock(mutex_);
      is_first = refused_.insert(from).second;
    }
    if (is_first) base::Log(base::LogLevel::kWarning, absl::StrCat("refused a message of ", from, ": ", why.message()));
    if (absl::IsResourceExhausted(why)) PeerFailed(from, why);
  }

  void Receive(const std::string& from, const MessageHeader& header, transport::Payload payload) {
    if (header.direction == kPing) {
      // A probe says where its sender can be answered: it may be known from no other yet.
      const std::string text(payload.text().substr(0, kAddressBytesMax));
      const std::string address = text.substr(0, text.find('\n'));
      if (address.size() == text.size() || !CheckPeerAddress(from, address).ok()) return;
      routes_->SetPeerAddress(from, address);
      MessageHeader pong = header;
      pong.direction = kPong;
      pong.not_before_ns = 0;
      (void)Endpoint()->Send(from, pong, transport::Payload::Of(std::string(kPongBytes, '\0')));  // a lost answer times out at the asker
      return;
    }
    if (header.direction == kPong) {
      const base::MutexLock lock(mutex_);
      if (from != probed_ || header.step != probes_) return;
      pongs_ = header.step;
      news_.notify_all();
      return;
    }
    if (header.direction >= runtime::kMessageKinds) return;
    const std::shared_ptr<runtime::Inbox> inbox = InboxOf(header);
    if (inbox == nullptr) return;  // of a plan that is over
    // Much may have come since it was admitted.
    if (const absl::Status status = Check(*inbox, from, header, payload.size()); !status.ok()) return Refuse(from, status);
    inbox->Deliver(KeyOf(header), runtime::Payload(payload.bytes().begin(), payload.bytes().end()));
  }

  void PeerFailed(const std::string& peer, const absl::Status& why) {
    std::shared_ptr<runtime::Inbox> inbox;
    std::function<void(const std::string&)> on_lost;
    {
      const base::MutexLock lock(mutex_);
      broken_.emplace(peer, why);
      news_.notify_all();
      if (std::find(peers_.begin(), peers_.end(), peer) == peers_.end()) return;
      inbox = inbox_;
      on_lost = on_lost_;
    }
    if (inbox == nullptr) return;
    if (on_lost) on_lost(peer);
    inbox->Cancel(absl::UnavailableError(absl::StrFormat("lost the connection to %s: %s", peer, std::string(why.message()))));
  }

  // Sends `bytes` and waits until the peer has answered that all of them are there.
  absl::StatusOr<double> RoundTrip(const std::string& peer, size_t bytes) {
    int64_t number = 0;
    {
      const base::MutexLock lock(mutex_);
      number = ++probes_;
      probed_ = peer;
    }
    MessageHeader header{.job_hash = job_hash_, .epoch = kProbeEpoch, .step = number};
    header.direction = kPing;
    const auto begin = std::chrono::steady_clock::now();
    std::string text = absl::StrCat(AddressFor(peer), "\n");
    text.resize(std::max(bytes, text.size()));
    FUSIONLLM_RETURN_IF_ERROR(Endpoint()->Send(peer, header, transport::Payload::Of(std::move(text))));
    base::UniqueLock lock(mutex_);
    const bool answered = news_.wait_for(
        lock, kProbeTimeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pongs_ == number || broken_.contains(peer); });
    if (pongs_ == number) return SecondsSince(begin);
    if (answered) return broken_.at(peer);
    return absl::DeadlineExceededError(absl::StrFormat("%s did not answer a probe of %d bytes", peer, bytes));
  }

  const DataPlaneOptions options_;
  std::string address_, site_address_;  // since Listen
  uint64_t job_hash_ = 0;
  std::shared_ptr<RouteEndpoint> routes_;  // since Listen

  mutable base::Mutex mutex_;
  std::shared_ptr<transport::Endpoint> endpoint_ ABSL_GUARDED_BY(mutex_);  // routes_, or what emulates links over it
  std::condition_variable news_;
  uint32_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> peers_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<runtime::Inbox> inbox_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const std::string&)> on_lost_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> evaluation_bytes_ ABSL_GUARDED_BY(mutex_);  // by peer, since Attach
  std::map<std::string, absl::Status> broken_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> near_ ABSL_GUARDED_BY(mutex_);     // peers of the same site
  std::set<std::string> refused_ ABSL_GUARDED_BY(mutex_);  // senders of what may not be, since Attach
  std::string probed_ ABSL_GUARDED_BY(mutex_);             // whose answer is awaited
  int64_t probes_ ABSL_GUARDED_BY(mutex_) = 0;             // number of the last probe
  int64_t pongs_ ABSL_GUARDED_BY(mutex_) = 0;              // of the last that was answered
};

DataPlane::DataPlane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DataPlane::~DataPlane() { Close(); }

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::Create(const DataPlaneOptions& options, const Credentials& credentials) {
  auto impl = std::make_unique<Impl>(options);
  FUSIONLLM_RETURN_IF_ERROR(impl->Listen(credentials));
  return std::unique_ptr<DataPlane>(new DataPlane(std::move(impl)));
}

const std::string& DataPlane::address() const { return impl_->address(); }
const std::string& DataPlane::site_address() const { return impl_->site_address(); }
absl::Status DataPlane::Emulate(const job::LinkTable& links, const std::string& state_file) { return impl_->Emulate(links, state_file); }
void DataPlane::SetPeer(const std::string& name, const std::string& address, bool same_site, uint64_t incarnation) {
  impl_->SetPeer(name, address, same_site, incarnation);
}
absl::StatusOr<LinkMeasurement> DataPlane::Probe(const std::string& peer) { return impl_->Probe(peer); }
runtime::MessagePort& DataPlane::Attach(uint32_t epoch, std::vector<std::string> peers, std::shared_ptr<runtime::Inbox> inbox,
                                        std::function<void(const std::string&)> on_lost) {
  return impl_->Attach(epoch, std::move(peers), std::move(inbox), std::move(on_lost));
}
void DataPlane::Detach(uint32_t epoch) { impl_->Detach(epoch); }
transport::LinkStats DataPlane::stats(const std::string& peer) const { return impl_->stats(peer); }
int64_t DataPlane::evaluation_bytes(const std::string& peer) const { return impl_->evaluation_bytes(peer); }
void DataPlane::Close() { impl_->Close(); }

}  // namespace fusionllm::services
