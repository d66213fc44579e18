#include "services/broker/checkpoint_exchange.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"
#include "lib/workload/stored_parameters.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/peer_name.h"

namespace fusionllm::services {
namespace {

// Small enough that a link of 10 kbit/s moves one within every timeout of lib/broker/timeouts.h.
constexpr int64_t kPieceBytes = 256 << 10;
constexpr int64_t kHeaderAllowance = 64 << 20;
constexpr size_t kMaxErrorBytes = 1024;               // of another process, to be reported by this one
constexpr int64_t kMaxFileBytes = int64_t{64} << 30;  // where the memory of a device is not known
constexpr size_t kMaxQuotedName = 128;
// Of one stage. It is never more than two ahead of the slowest one, and committing takes a while: who saves faster waits.
constexpr size_t kMaxStagedSteps = 4;

grpc::Status ToGrpc(const absl::Status& status) { return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())}; }

int64_t FreeBytes(const std::string& path) {
  std::error_code error;
  // The folder may not exist yet.
  std::filesystem::path folder = path;
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  return error ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(space.available);
}

// A device holds parameters, gradients and optimizer state: no file of a shard is as large as its memory. Twice, as plans are estimates.
int64_t LargestFile(int64_t memory_bytes) { return memory_bytes > 0 ? 2 * memory_bytes + kHeaderAllowance : kMaxFileBytes; }

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

// One call of an admitted executor. While it lives it can be cancelled by Close, Open or a newer call.
class CheckpointExchange::Call {
 public:
  Call(CheckpointExchange& exchange, uint64_t id, int stage, Epoch epoch)
      : exchange_(exchange), id_(id), stage_(stage), epoch_(std::move(epoch)) {}
  ~Call() {
    const base::MutexLock lock(exchange_.mutex_);
    exchange_.calls_.erase(id_);
    if (const auto putting = exchange_.putting_.find(stage_); putting != exchange_.putting_.end() && putting->second == id_)
      exchange_.putting_.erase(putting);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  uint64_t id() const { return id_; }
  int stage() const { return stage_; }
  const Epoch& epoch() const { return epoch_; }
  // Stages the file if nothing has ended this call in between.
  absl::Status Stage(checkpoint::IncomingFile& file, int64_t step) {
    const base::MutexLock lock(exchange_.mutex_);
    const auto putting = exchange_.putting_.find(stage_);
    if (putting == exchange_.putting_.end() || putting->second != id_) return absl::AbortedError("the transfer was overtaken");
    exchange_.staged_[stage_].insert(step);
    return file.Stage();
  }

 private:
  CheckpointExchange& exchange_;
  const uint64_t id_;
  const int stage_;
  const Epoch epoch_;
};

CheckpointExchange::CheckpointExchange(CheckpointExchangeOptions options) : options_(std::move(options)) {}

void CheckpointExchange::Open(Epoch epoch) {
  Close();
  const base::MutexLock lock(mutex_);
  epoch_ = std::move(epoch);
  staged_.clear();
  open_ = true;
}

void CheckpointExchange::Close() {
  const base::MutexLock lock(mutex_);
  open_ = false;
  putting_.clear();
  settled_.notify_all();
  for (const auto& [id, context] : calls_) context->TryCancel();
}

absl::StatusOr<std::unique_ptr<CheckpointExchange::Call>> CheckpointExchange::Admit(grpc::ServerContext* context,
                                                                                    const std::string& executor, uint32_t epoch,
                                                                                    bool puts) {
  if (options_.require_certificate && !IsCertifiedAs(*context, executor)) {
    return absl::PermissionDeniedError(
        absl::StrFormat("the certificate presented was not issued to executor '%s' by this job's CA", executor));
  }
  const base::MutexLock lock(mutex_);
  if (!open_ || epoch != epoch_.number) {
    return absl::AbortedError(absl::StrFormat("plan epoch %d is not in force", epoch));
  }
  const auto device = std::find(epoch_.devices.begin(), epoch_.devices.end(), executor);
  if (device == epoch_.devices.end()) {
    return absl::PermissionDeniedError(absl::StrFormat("executor '%s' runs no stage of plan epoch %d", executor, epoch));
  }
  const uint64_t id = next_call_++;
  const int stages = static_cast<int>(epoch_.devices.size()) / epoch_.replicas;
  const int rank = static_cast<int>(device - epoch_.devices.begin()), stage = rank % stages;
  if (puts && rank >= stages) {
    return absl::PermissionDeniedError(
        absl::StrFormat("executor '%s' runs stage %d of replica %d: what is saved is replica 0's", executor, stage, rank / stages));
  }
  if (puts) {
    // A connection that broke may not have been noticed here yet: the newer call is the one that counts.
    if (const auto older = putting_.find(stage); older != putting_.end()) calls_.at(older->second)->TryCancel();
    putting_[stage] = id;
    settled_.notify_all();  // an older one may wait there
  }
  calls_[id] = context;
  return std::make_unique<Call>(*this, id, stage, epoch_);
}

absl::StatusOr<ExecutorCallLimiter::Permit> CheckpointExchange::Enter(const grpc::ServerContext& context) const {
  if (options_.calls == nullptr) return ExecutorCallLimiter::Permit();
  return options_.calls->Enter(context);
}

void CheckpointExchange::Progress() {
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  {
    const base::MutexLock lock(mutex_);
    if (now == last_progress_s_) return;
    last_progress_s_ = now;
  }
  if (progress_) progress_();
}

// ---- Shards -----------------------------------------------------------------------------------------------------------------------------

grpc::Status CheckpointExchange::PutShardFile(grpc::ServerContext* context, grpc::ServerReader<v1::ShardFilePiece>* reader,
                                              v1::ShardFileReceipt* receipt) {
  // Nothing is read from outsiders.
  if (options_.require_certificate && !HasCertificate(*context)) {
    return {grpc::StatusCode::PERMISSION_DENIED, "no certificate of this job's CA was presented"};
  }
  const absl::StatusOr<ExecutorCallLimiter::Permit> permit = Enter(*context);
  if (!permit.ok()) return ToGrpc(permit.status());
  v1::ShardFilePiece first;
  if (!reader->Read(&first) || !first.has_header()) return {grpc::StatusCode::INVALID_ARGUMENT, "a shard file begins with its header"};
  const v1::ShardFileHeader header = first.header();
  if (header.recall() > 0) return ToGrpc(ReceiveFetched(context, header, *reader, *receipt));
  const auto call = Admit(context, header.executor(), header.epoch(), /*puts=*/true);
  if (!call.ok()) return ToGrpc(call.status());
  if (const absl::Status status = CheckHeader(**call, header); !status.ok()) return ToGrpc(status);
  if (const absl::Status status = AwaitRoomForStep(**call, header); !status.ok()) return ToGrpc(status);
  return ToGrpc(TakeFile(**call, header, *reader, *receipt));
}

absl::Status CheckpointExchange::CheckHeader(const Call& call, const v1::ShardFileHeader& header) const {
  if (options_.checkpoint_directory.empty()) return absl::FailedPreconditionError("this job keeps no checkpoints");
  const int stages = static_cast<int>(call.epoch().devices.size()) / call.epoch().replicas;
  if (header.stage() != call.stage()) {
    return absl::PermissionDeniedError(
        absl::StrFormat("executor '%s' runs stage %d, not stage %d", header.executor(), call.stage(), header.stage()));
  }
  if (header.step() < 0 || header.step() > options_.total_steps) {
    return absl::InvalidArgumentError(absl::StrFormat("step %d of a run of %d", header.step(), options_.total_steps));
  }
  if (!checkpoint::IsShardFileOf(header.name(), header.stage(), stages)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("stage %d of %d has no file called \"%s\"", header.stage(), stages, header.name().substr(0, kMaxQuotedName)));
  }
  const size_t stage = static_cast<size_t>(call.stage());
  const int64_t limit = LargestFile(stage < call.epoch().memory_bytes.size() ? call.epoch().memory_bytes[stage] : 0);
  if (header.bytes() <= 0 || header.bytes() > limit) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s of %d bytes: files of stage %d have from 1 to %d", header.name(), header.bytes(), header.stage(), limit));
  }
  return CheckRoom(header, options_.checkpoint_directory);
}

absl::Status CheckpointExchange::AwaitRoomForStep(const Call& call, const v1::ShardFileHeader& header) {
  base::UniqueLock lock(mutex_);
  const auto overtaken = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto putting = putting_.find(call.stage());
    return putting == putting_.end() || putting->second != call.id();
  };
  const auto has_room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto staged = staged_.find(header.stage());
    return staged == staged_.end() || staged->second.size() < kMaxStagedSteps || staged->second.contains(header.step());
  };
  const auto timeout = absl::ToChronoNanoseconds(options_.settle_timeout);
  if (!settled_.wait_for(lock, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return overtaken() || has_room(); })) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("files of stage %d for %d steps are here that no checkpoint has yet", header.stage(), kMaxStagedSteps));
  }
  return overtaken() ? absl::AbortedError("the transfer was overtaken") : absl::OkStatus();
}

void CheckpointExchange::Settled(int64_t step) {
  const base::MutexLock lock(mutex_);
  for (auto& [stage, steps] : staged_) steps.erase(step);
  settled_.notify_all();
}

absl::Status CheckpointExchange::CheckRoom(const v1::ShardFileHeader& header, const std::string& folder) const {
  const int64_t room = options_.free_bytes ? options_.free_bytes(folder) : FreeBytes(folder);
  if (header.bytes() > room) {
    return absl::ResourceExhaustedError(absl::StrFormat("No space left for %s of %d bytes from %s: %d are free in %s", header.name(),
                                                        header.bytes(), header.executor(), room, folder));
  }
  return absl::OkStatus();
}

absl::Status CheckpointExchange::TakeFile(Call& call, const v1::ShardFileHeader& header, grpc::ServerReader<v1::ShardFilePiece>& reader,
                                          v1::ShardFileReceipt& receipt) {
  FUSIONLLM_ASSIGN_OR_RETURN(const auto file, checkpoint::IncomingFile::Create(options_.checkpoint_directory, header.step(), header.name(),
                                                                               header.bytes(), call.id()));
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::WrittenFile written, Receive(*file, reader, header.name(), [this] { Progress(); }));
  FUSIONLLM_RETURN_IF_ERROR(call.Stage(*file, header.step()));
  receipt.set_bytes(written.bytes);
  receipt.set_sha256(written.sha256);
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::WrittenFile> CheckpointExchange::Receive(checkpoint::IncomingFile& file,
                                                                    grpc::ServerReader<v1::ShardFilePiece>& reader, const std::string& name,
                                                                    const std::function<void()>& moved) {
  v1::ShardFilePiece piece;
  while (reader.Read(&piece)) {
    if (!piece.header().error().empty()) return absl::DataLossError(piece.header().error().substr(0, kMaxErrorBytes));
    if (piece.has_header()) return absl::InvalidArgumentError("a second header within a shard file");
    FUSIONLLM_RETURN_IF_ERROR(file.Write(Bytes(piece.data())));
    moved();
    if (!piece.sha256().empty()) return file.Seal(piece.sha256());
  }
  return absl::CancelledError(absl::StrCat(name, " ended without its checksum"));
}

// What its site sends of a checkpoint that is whole already: no epoch is asked about, and nothing is taken that was not asked for.
absl::Status CheckpointExchange::ReceiveFetched(grpc::ServerContext* context, const v1::ShardFileHeader& header,
                                                grpc::ServerReader<v1::ShardFilePiece>& reader, v1::ShardFileReceipt& receipt) {
  if (options_.require_certificate && !IsCertifiedAs(*context, header.executor())) {
    return absl::PermissionDeniedError(
        absl::StrFormat("the certificate presented was not issued to executor '%s' by this job's CA", header.executor()));
  }
  if (options_.shard_fetcher == nullptr) return absl::PermissionDeniedError("nothing was asked for");
  FUSIONLLM_ASSIGN_OR_RETURN(const auto arrival,
                             options_.shard_fetcher->Take(header.executor(), header.recall(), [context] { context->TryCancel(); }));
  const checkpoint::FileEntry& wanted = arrival->file();
  const auto take = [&]() -> absl::StatusOr<checkpoint::WrittenFile> {
    if (!header.error().empty()) return absl::DataLossError(header.error().substr(0, kMaxErrorBytes));
    if (header.name() != wanted.name || header.bytes() != wanted.bytes) {
      return absl::DataLossError(absl::StrFormat("it has %d bytes of \"%s\" for it, not %d", header.bytes(),
                                                 header.name().substr(0, kMaxQuotedName), wanted.bytes));
    }
    FUSIONLLM_RETURN_IF_ERROR(CheckRoom(header, arrival->folder()));
    FUSIONLLM_ASSIGN_OR_RETURN(const auto file, checkpoint::IncomingFile::CreateIn(arrival->folder(), wanted.name, wanted.bytes));
    FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::WrittenFile written, Receive(*file, reader, wanted.name, [&] {
                                 arrival->Moved();
                                 Progress();
                               }));
    if (written.sha256 != wanted.sha256) {
      return absl::DataLossError(absl::StrCat("it has the checksum ", written.sha256, " there instead of ", wanted.sha256));
    }
    FUSIONLLM_RETURN_IF_ERROR(file->Stage());
    return written;
  };
  const absl::StatusOr<checkpoint::WrittenFile> written = take();
  // A stream that broke says nothing about the file.
  arrival->Done(absl::IsCancelled(written.status()) ? absl::UnavailableError(written.status().message()) : written.status());
  if (!written.ok()) return written.status();
  receipt.set_bytes(written->bytes);
  receipt.set_sha256(written->sha256);
  return absl::OkStatus();
}

// ---- Tensors ----------------------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::string> CheckpointExchange::PathOf(const Call& call, v1::FetchTensorsRequest::Source source) const {
  switch (source) {
    case v1::FetchTensorsRequest::RESTORE:
      if (call.epoch().restore_from.empty()) return absl::NotFoundError("this plan epoch restores no checkpoint");
      return call.epoch().restore_from;
    case v1::FetchTensorsRequest::INIT:
      if (options_.init_from.empty()) return absl::NotFoundError("this job has no spec.model.init.from");
      return options_.init_from;
    default:
      return absl::InvalidArgumentError(absl::StrFormat("unknown source %d of tensors", static_cast<int>(source)));
  }
}

absl::Status CheckpointExchange::CheckNames(const Call& call, const v1::FetchTensorsRequest& request) {
  // A start has no state: what a file of another run has of that is not wanted.
  const bool parameters_only = request.source() == v1::FetchTensorsRequest::INIT;
  const StageTensors& tensors = call.epoch().tensors;
  std::set<absl::string_view> asked;
  for (const std::string& name : request.names()) {
    const bool held = parameters_only ? tensors.HoldsParameter(call.stage(), name) : tensors.Holds(call.stage(), name);
    if (!held) {
      return absl::PermissionDeniedError(absl::StrFormat("executor '%s' runs stage %d of plan epoch %d, which holds no tensor '%s'",
                                                         request.executor(), call.stage(), request.epoch(),
                                                         absl::CHexEscape(name.substr(0, kMaxQuotedName))));
    }
    if (!asked.insert(name).second) return absl::InvalidArgumentError(absl::StrCat("the tensor '", name, "' is asked for twice"));
  }
  if (request.may_lack_size() > request.names_size()) {
    return absl::InvalidArgumentError("more tensors may be lacking than are asked for");
  }
  return absl::OkStatus();
}

grpc::Status CheckpointExchange::FetchTensors(grpc::ServerContext* context, const v1::FetchTensorsRequest* request,
                                              grpc::ServerWriter<v1::TensorPiece>* writer) {
  const absl::StatusOr<ExecutorCallLimiter::Permit> permit = Enter(*context);
  if (!permit.ok()) return ToGrpc(permit.status());
  const auto call = Admit(context, request->executor(), request->epoch(), /*puts=*/false);
  if (!call.ok()) return ToGrpc(call.status());
  if (const absl::Status held = CheckNames(**call, *request); !held.ok()) return ToGrpc(held);
  const absl::StatusOr<std::string> path = PathOf(**call, request->source());
  if (!path.ok()) return ToGrpc(path.status());
  absl::StatusOr<checkpoint::CheckpointReader> reader = checkpoint::CheckpointReader::Open(*path, checkpoint::SiteFilesPolicy::kSkip);
  if (!reader.ok()) return ToGrpc(reader.status());
  if (const absl::Status fetched = FetchMissing(**call, *request, *context, *reader); !fetched.ok()) return ToGrpc(fetched);
  v1::TensorPiece piece;
  piece.mutable_checkpoint()->set_path(*path);
  if (reader->manifest().has_value()) {
    piece.mutable_checkpoint()->set_step(reader->manifest()->step);
    piece.mutable_checkpoint()->set_samples_consumed(reader->manifest()->samples_consumed);
  }
  if (!writer->Write(piece)) return grpc::Status::CANCELLED;
  const std::set<std::string> may_lack(request->may_lack().begin(), request->may_lack().end());
  const tensor::TensorType count{tensor::DType::kI64, {}};  // nothing else may lack
  for (const std::string& name : request->names()) {
    if (may_lack.contains(name) && workload::BeginsAtZero(count, *reader, name)) continue;
    if (const absl::Status status = SendTensor(*reader, name, *writer); !status.ok()) return ToGrpc(status);
  }
  return grpc::Status::OK;
}

absl::Status CheckpointExchange::FetchMissing(const Call& call, const v1::FetchTensorsRequest& request, grpc::ServerContext& context,
                                              checkpoint::CheckpointReader& reader) {
  const std::set<std::string> names(request.names().begin(), request.names().end());
  bool brought = false;
  for (const checkpoint::FileEntry& file : reader.files_in_other_sites()) {
    const bool wanted =
        std::any_of(file.tensors.begin(), file.tensors.end(), [&](const std::string& name) { return names.contains(name); });
    if (!wanted) continue;
    // `reader` keeps the checkpoint from being removed.
    const absl::Status status = options_.shard_fetcher == nullptr
                                    ? absl::UnavailableError(absl::StrCat(file.name, " of ", reader.path(), " lies in site ", file.site))
                                    : options_.shard_fetcher->FetchShard(reader.path(), file, [&] { return context.IsCancelled(); });
    if (absl::IsCancelled(status)) return absl::AbortedError(status.message());
    if (!status.ok() && !absl::IsDataLoss(status) && !absl::IsUnavailable(status)) return status;  // the disk here, not the checkpoint
    if (!status.ok()) {
      if (request.source() == v1::FetchTensorsRequest::RESTORE && unusable_)
        unusable_(call.epoch().number, call.epoch().restore_from, status);
      return absl::DataLossError(status.message());
    }
    brought = true;
  }
  if (!brought) return absl::OkStatus();
  absl::StatusOr<checkpoint::CheckpointReader> again =
      checkpoint::CheckpointReader::Open(reader.path(), checkpoint::SiteFilesPolicy::kSkip);
  if (again.ok()) reader = *std::move(again);
  return again.status();
}

absl::Status CheckpointExchange::SendTensor(const checkpoint::CheckpointReader& reader, const std::string& name,
                                            grpc::ServerWriter<v1::TensorPiece>& writer) {
  const auto found = reader.tensors().find(name);
  if (found == reader.tensors().end()) return absl::NotFoundError(absl::StrCat(reader.path(), " has no tensor '", name, "'"));
  const checkpoint::TensorEntry& entry = *found->second.entry;
  v1::TensorPiece piece;
  piece.mutable_tensor()->set_name(name);
  piece.mutable_tensor()->set_dtype(entry.dtype_name);
  for (const int64_t extent : entry.shape.dims()) piece.mutable_tensor()->add_shape(extent);
  checkpoint::Sha256 hash;
  int64_t at = 0;
  while (true) {
    const int64_t length = std::min(kPieceBytes, entry.bytes() - at);
    piece.mutable_data()->resize(static_cast<size_t>(length));
    FUSIONLLM_RETURN_IF_ERROR(found->second.file->ReadBytes(entry, at, std::as_writable_bytes(std::span(*piece.mutable_data()))));
    hash.Update(Bytes(piece.data()));
    at += length;
    const bool last = at == entry.bytes();
    if (last) piece.set_sha256(hash.HexDigest());
    if (!writer.Write(piece)) return absl::CancelledError("the executor is gone");
    Progress();
    if (last) return absl::OkStatus();
    piece.Clear();
  }
}

}  // namespace fusionllm::services
