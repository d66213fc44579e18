#include "services/executor/checkpoint_client.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/safetensors_header.h"
#include "lib/checkpoint/tensor_fill.h"
#include "lib/workload/stored_parameters.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/broker_channel.h"

namespace fusionllm::services {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr uint32_t kOfNoEpoch = std::numeric_limits<uint32_t>::max();  // ends when all calls do
constexpr auto kRetryPause = std::chrono::milliseconds(500);
constexpr auto kFileTimeout = std::chrono::seconds(120);  // for a file; longer than a broker takes to come back

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // The broker has ended the epoch, and its order to do so is on its way.
  if (status.error_code() == grpc::StatusCode::ABORTED) return absl::CancelledError(status.error_message());
  // "Stream removed": a connection that went with its broker. No broker says so itself.
  if (status.error_code() == grpc::StatusCode::UNKNOWN) return absl::UnavailableError(status.error_message());
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Checks the stream of one Fetch, piece by piece, and fills the tensors.
class Receiver {
 public:
  // Of `may_lack` any may not come.
  Receiver(const CheckpointClient::Wanted& wanted, std::set<std::string> may_lack) : wanted_(wanted), may_lack_(std::move(may_lack)) {}

  absl::Status Take(const v1::TensorPiece& piece) {
    if (piece.has_checkpoint()) {
      path_ = absl::StrCat(piece.checkpoint().path(), " on the broker's machine");
      position_ = {.step = piece.checkpoint().step(), .samples_consumed = piece.checkpoint().samples_consumed()};
      return absl::OkStatus();
    }
    if (piece.has_tensor()) FUSIONLLM_RETURN_IF_ERROR(Begin(piece.tensor()));
    if (!fill_.has_value()) return Broken("sends bytes of no tensor");
    const auto bytes = std::as_bytes(std::span(piece.data()));
    hash_.Update(bytes);
    if (const absl::Status status = fill_->Append(bytes); !status.ok()) return Broken(status.message());
    if (piece.sha256().empty()) return absl::OkStatus();
    if (!fill_->full()) return Broken("ends a tensor too early");
    fill_.reset();
    if (hash_.HexDigest() != piece.sha256()) return Broken("arrived with another checksum than it was sent with");
    ++done_;
    return absl::OkStatus();
  }

  absl::StatusOr<CheckpointPosition> Finish() {
    PassOver("");
    if (done_ != wanted_.size()) return Broken("ends early");
    return position_;
  }

 private:
  void PassOver(const std::string& name) {
    while (done_ < wanted_.size() && wanted_[done_].first != name && may_lack_.contains(wanted_[done_].first)) ++done_;
  }
  absl::Status Begin(const v1::TensorHeader& header) {
    PassOver(header.name());
    if (done_ == wanted_.size() || header.name() != wanted_[done_].first) return Broken("has another order than was asked for");
    if (header.shape_size() > static_cast<int>(checkpoint::kMaxRank)) return Broken("has a shape of too many dimensions");
    const checkpoint::TensorEntry stored = {.name = header.name(),
                                            .dtype_name = header.dtype(),
                                            .dtype = checkpoint::StoredDType(header.dtype()),
                                            .shape = tensor::Shape({header.shape().begin(), header.shape().end()})};
    FUSIONLLM_ASSIGN_OR_RETURN(fill_, checkpoint::TensorFill::Create(path_, stored, wanted_[done_].second));
    hash_ = {};
    return absl::OkStatus();
  }
  absl::Status Broken(absl::string_view what) const {
    const std::string tensor = done_ < wanted_.size() ? absl::StrCat(", tensor '", wanted_[done_].first, "'") : "";
    return absl::DataLossError(absl::StrCat("what came of ", path_.empty() ? "a checkpoint" : path_, tensor, ": it ", what));
  }

  const CheckpointClient::Wanted& wanted_;
  const std::set<std::string> may_lack_;
  std::string path_;
  CheckpointPosition position_;
  std::optional<checkpoint::TensorFill> fill_;
  checkpoint::Sha256 hash_;
  size_t done_ = 0;
};

}  // namespace

// A context that Cancel reaches while it lives.
class CheckpointClient::Call {
 public:
  Call(CheckpointClient& client, uint32_t epoch) : client_(client), epoch_(epoch) {
    const base::MutexLock lock(client_.mutex_);
    place_ = client_.calls_.emplace(epoch_, &context_);
    if (epoch_ <= client_.cancelled_epoch_) context_.TryCancel();
  }
  ~Call() {
    const base::MutexLock lock(client_.mutex_);
    client_.calls_.erase(place_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  grpc::ClientContext& context() { return context_; }

 private:
  CheckpointClient& client_;
  const uint32_t epoch_;
  grpc::ClientContext context_;
  std::multimap<uint32_t, grpc::ClientContext*>::iterator place_;
};

v1::CheckpointExchange::Stub& CheckpointClient::Stub() {
  const base::MutexLock lock(mutex_);
  if (stub_ == nullptr) {
    stub_ = v1::CheckpointExchange::NewStub(BrokerChannel(options_.address, options_.credentials, /*own_connection=*/true));
  }
  return *stub_;
}

void CheckpointClient::Cancel(uint32_t epoch) {
  const base::MutexLock lock(mutex_);
  cancelled_epoch_ = std::max(cancelled_epoch_, epoch);
  for (const auto& [of_epoch, context] : calls_) {
    if (of_epoch <= cancelled_epoch_) context->TryCancel();
  }
  cancelled_.notify_all();
}

bool CheckpointClient::Pause(uint32_t epoch) {
  base::UniqueLock lock(mutex_);
  return !cancelled_.wait_for(lock, kRetryPause, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return epoch <= cancelled_epoch_; });
}

absl::StatusOr<std::vector<checkpoint::FileEntry>> CheckpointClient::PutShard(uint32_t epoch, int64_t step, int stage, int stages,
                                                                              const checkpoint::ShardContents& contents) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<checkpoint::ShardFileImage> files, checkpoint::LayOutShard(step, stage, stages, contents));
  std::vector<checkpoint::FileEntry> entries;
  for (const checkpoint::ShardFileImage& file : files) {
    absl::StatusOr<checkpoint::FileEntry> entry = PutFile(epoch, step, stage, file);
    const auto give_up = std::chrono::steady_clock::now() + kFileTimeout;
    while (absl::IsUnavailable(entry.status()) && std::chrono::steady_clock::now() < give_up) {
      if (!Pause(epoch)) return absl::CancelledError("the plan epoch is over");
      entry = PutFile(epoch, step, stage, file);
    }
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  return entries;
}

absl::StatusOr<checkpoint::FileEntry> CheckpointClient::PutFile(uint32_t epoch, int64_t step, int stage,
                                                                const checkpoint::ShardFileImage& file) {
  v1::CheckpointExchange::Stub& stub = Stub();
  Call call(*this, epoch);
  v1::ShardFileReceipt receipt;
  const auto writer = stub.PutShardFile(&call.context(), &receipt);
  v1::ShardFilePiece piece;
  v1::ShardFileHeader& header = *piece.mutable_header();
  header.set_executor(options_.executor);
  header.set_epoch(epoch);
  header.set_step(step);
  header.set_stage(stage);
  header.set_name(file.name);
  header.set_bytes(file.image.bytes());
  bool good = writer->Write(piece);
  checkpoint::Sha256 hash;
  piece.Clear();
  // A refusal ends the stream: its reason comes with Finish.
  const absl::Status sent = file.image.ForEachPiece(kPieceBytes, [&](std::span<const std::byte> bytes) {
    piece.set_data(bytes.data(), bytes.size());
    hash.Update(bytes);
    good = good && writer->Write(piece);
    return good ? absl::OkStatus() : absl::UnavailableError("the broker takes no more");
  });
  const std::string sum = hash.HexDigest();
  if (sent.ok()) {
    piece.Clear();
    piece.set_sha256(sum);
    writer->Write(piece);
    writer->WritesDone();
  }
  if (const grpc::Status status = writer->Finish(); !status.ok()) return FromGrpc(status);
  if (receipt.bytes() != file.image.bytes() || receipt.sha256() != sum) {
    return absl::DataLossError(absl::StrCat("the broker has stored ", file.name, " with another length or checksum than it was sent with"));
  }
  return checkpoint::FileEntry{.name = file.name, .bytes = receipt.bytes(), .sha256 = sum, .tensors = file.image.tensors()};
}

absl::Status CheckpointClient::SendFile(uint64_t fetch_id, const std::string& name, const std::string& path) {
  const auto give_up = std::chrono::steady_clock::now() + kFileTimeout;
  SendAttempt sent = TrySendFile(fetch_id, name, path);
  // A connection that did not come about says nothing to the broker, which would wait; what broke on its way it refuses to take again.
  while (absl::IsUnavailable(sent.answer) && std::chrono::steady_clock::now() < give_up) {
    if (!Pause(kOfNoEpoch)) return absl::CancelledError("the executor ends");
    sent = TrySendFile(fetch_id, name, path);
  }
  if (sent.read.ok()) return sent.answer;
  const bool repeats = absl::StrContains(sent.answer.message(), sent.read.message());
  if (sent.answer.ok() || repeats) return sent.read;
  return absl::Status(sent.read.code(), absl::StrCat(sent.read.message(), "; the broker says: ", sent.answer.message()));
}

CheckpointClient::SendAttempt CheckpointClient::TrySendFile(uint64_t fetch_id, const std::string& name, const std::string& path) {
  const absl::StatusOr<base::SourceFile> source = base::SourceFile::Open(path, /*keep_open=*/true);
  v1::CheckpointExchange::Stub& stub = Stub();
  Call call(*this, kOfNoEpoch);
  v1::ShardFileReceipt receipt;
  const auto writer = stub.PutShardFile(&call.context(), &receipt);
  v1::ShardFilePiece piece;
  v1::ShardFileHeader& header = *piece.mutable_header();
  header.set_executor(options_.executor);
  header.set_recall(fetch_id);
  header.set_name(name);
  header.set_bytes(source.ok() ? source->size() : 0);
  if (!source.ok()) header.set_error(std::string(source.status().message()));
  bool good = writer->Write(piece);
  piece.Clear();
  absl::Status read = source.status();
  checkpoint::Sha256 hash;
  std::vector<std::byte> bytes(kPieceBytes);
  for (int64_t at = 0; read.ok() && good && at < source->size();) {
    const std::span part(bytes.data(), static_cast<size_t>(std::min<int64_t>(kPieceBytes, source->size() - at)));
    read = source->ReadAt(at, part);
    if (!read.ok()) break;
    hash.Update(part);
    piece.set_data(part.data(), part.size());
    good = writer->Write(piece);
    at += static_cast<int64_t>(part.size());
  }
  piece.Clear();
  if (read.ok()) {
    piece.set_sha256(hash.HexDigest());
  } else {
    piece.mutable_header()->set_error(std::string(read.message()));
  }
  // What may go well another time ends without a word: the broker asks again.
  if (good && source.ok() && !absl::IsUnavailable(read)) writer->Write(piece);
  writer->WritesDone();
  return {.read = read, .answer = FromGrpc(writer->Finish())};
}

absl::StatusOr<CheckpointPosition> CheckpointClient::Fetch(uint32_t epoch, v1::FetchTensorsRequest::Source source, const Wanted& wanted) {
  v1::FetchTensorsRequest request;
  request.set_executor(options_.executor);
  request.set_epoch(epoch);
  request.set_source(source);
  std::set<std::string> may_lack;
  for (const auto& [name, view] : wanted) {
    request.add_names(name);
    if (source != v1::FetchTensorsRequest::INIT || !workload::MayBeginAtZero(view.type)) continue;
    request.add_may_lack(name);
    may_lack.insert(name);
  }
  v1::CheckpointExchange::Stub& stub = Stub();
  Call call(*this, epoch);
  const auto reader = stub.FetchTensors(&call.context(), request);
  Receiver receiver(wanted, std::move(may_lack));
  v1::TensorPiece piece;
  absl::Status taken;
  while (taken.ok() && reader->Read(&piece)) taken = receiver.Take(piece);
  if (!taken.ok()) call.context().TryCancel();
  const grpc::Status status = reader->Finish();
  FUSIONLLM_RETURN_IF_ERROR(taken);
  if (!status.ok()) return FromGrpc(status);
  return receiver.Finish();
}

}  // namespace fusionllm::services
