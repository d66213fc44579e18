#include "lib/job/gpt2_config_json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/base/truncate_utf8.h"

namespace fusionllm::job {
namespace {

using nlohmann::json;

constexpr char kModelType[] = "gpt2", kArchitecture[] = "GPT2LMHeadModel";
constexpr double kEpsilon = 1e-5;
constexpr size_t kMaxExcerptBytes = 60;
// All three are the tanh approximation; gelu_fast multiplies in another order.
constexpr const char* kGelus[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};

std::string Excerpt(const json& value) {
  return base::TruncateUtf8(value.dump(-1, ' ', false, json::error_handler_t::replace), kMaxExcerptBytes);
}

absl::Status GetSize(const json& document, const char* key, int64_t most, int64_t& size) {
  const auto found = document.find(key);
  if (found == document.end()) return absl::OkStatus();
  if (!found->is_number_integer() || *found < 1 || *found > most) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is ", Excerpt(*found), ", but must be a whole number from 1 to ", most));
  }
  size = found->get<int64_t>();
  return absl::OkStatus();
}

bool NamesGpt2(const json& document) {
  if (const auto type = document.find("model_type"); type != document.end()) return *type == kModelType;
  const auto names = document.find("architectures");
  if (names == document.end() || !names->is_array()) return false;
  return std::any_of(names->begin(), names->end(),
                     [](const json& name) { return name.is_string() && name.get_ref<const std::string&>().starts_with("GPT2"); });
}

void FindProblems(const json& document, Gpt2ConfigJson& config) {
  const auto unless = [&](const char* key, bool fits, absl::string_view wanted) {
    if (!fits) config.problems.push_back(absl::StrCat(key, " is ", Excerpt(document.at(key)), ", and family gpt2 has ", wanted));
  };
  const auto has = [&](const char* key) { return document.contains(key) && !document.at(key).is_null(); };
  const auto flag = [&](const char* key, bool wanted) {
    if (has(key)) unless(key, document.at(key) == wanted, wanted ? "true" : "false");
  };
  if (has("activation_function")) {
    const json& name = document.at("activation_function");
    const bool gelu = std::any_of(std::begin(kGelus), std::end(kGelus), [&](const char* known) { return name == known; });
    unless("activation_function", gelu, "gelu_new");
  }
  if (has("layer_norm_epsilon")) {
    const json& epsilon = document.at("layer_norm_epsilon");
    unless("layer_norm_epsilon", epsilon.is_number() && std::abs(epsilon.get<double>() - kEpsilon) < 1e-3 * kEpsilon, "1e-05");
  }
  if (has("n_inner")) {
    unless("n_inner", document.at("n_inner") == 4 * config.sizes.n_embd, absl::StrCat("four times n_embd, ", 4 * config.sizes.n_embd));
  }
  flag("scale_attn_weights", true);
  flag("scale_attn_by_inverse_layer_idx", false);
  flag("add_cross_attention", false);
  std::string dropouts;
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
    if (has(key) && document.at(key) != 0) absl::StrAppend(&dropouts, dropouts.empty() ? "" : ", ", key, " ", Excerpt(document.at(key)));
  }
  if (!dropouts.empty()) config.warnings.push_back(absl::StrCat("it was trained with dropout (", dropouts, "), and family gpt2 has none"));
}

}  // namespace

absl::StatusOr<std::optional<Gpt2ConfigJson>> ParseGpt2ConfigJson(absl::string_view text) {
  const json document = base::ParseJson(text);
  if (!document.is_object()) return absl::InvalidArgumentError("it is no JSON object");
  if (!document.contains("model_type") && !document.contains("architectures")) return std::nullopt;
  if (!NamesGpt2(document)) {
    const char* const key = document.contains("model_type") ? "model_type" : "architectures";
    return absl::InvalidArgumentError(absl::StrCat(key, " is ", Excerpt(document.at(key)), ", not that of a ", kModelType));
  }
  Gpt2ConfigJson config{.sizes = {.n_layer = 12, .n_head = 12, .n_embd = 768, .vocab_size = 50257, .block_size = 1024}};
  FUSIONLLM_RETURN_IF_ERROR(GetSize(document, "n_layer", 10'000, config.sizes.n_layer));
  FUSIONLLM_RETURN_IF_ERROR(GetSize(document, "n_head", 10'000, config.sizes.n_head));
  FUSIONLLM_RETURN_IF_ERROR(GetSize(document, "n_embd", 1 << 20, config.sizes.n_embd));
  FUSIONLLM_RETURN_IF_ERROR(GetSize(document, "vocab_size", 1 << 24, config.sizes.vocab_size));
  FUSIONLLM_RETURN_IF_ERROR(GetSize(document, "n_positions", 1 << 20, config.sizes.block_size));
  if (document.contains("tie_word_embeddings")) {
    const json& tied = document.at("tie_word_embeddings");
    if (!tied.is_boolean())
      return absl::InvalidArgumentError(absl::StrCat("tie_word_embeddings is ", Excerpt(tied), ", but must be true or false"));
    config.sizes.tie_weights = tied.get<bool>();
  }
  FindProblems(document, config);
  return config;
}

std::string FormatGpt2ConfigJson(const GptConfig& sizes) {
  const nlohmann::ordered_json document = {{"architectures", json::array({kArchitecture})},
                                           {"model_type", kModelType},
                                           {"n_layer", sizes.n_layer},
                                           {"n_head", sizes.n_head},
                                           {"n_embd", sizes.n_embd},
                                           {"vocab_size", sizes.vocab_size},
                                           {"n_positions", sizes.block_size},
                                           {"tie_word_embeddings", sizes.tie_weights},
                                           {"activation_function", "gelu_new"},
                                           {"layer_norm_epsilon", kEpsilon},
                                           {"attn_pdrop", 0.0},
                                           {"embd_pdrop", 0.0},
                                           {"resid_pdrop", 0.0},
                                           {"bos_token_id", nullptr},
                                           {"eos_token_id", nullptr}};
  return document.dump(2) + "\n";
}

}  // namespace fusionllm::job
