// Early return on absl::Status errors: FUSIONLLM_RETURN_IF_ERROR(expr) and FUSIONLLM_ASSIGN_OR_RETURN(declaration, expr).
// Both evaluate expr once. Without exceptions they are what keeps error paths one line long.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define FUSIONLLM_MACRO_CONCAT_INNER(a, b) a##b
#define FUSIONLLM_MACRO_CONCAT(a, b) FUSIONLLM_MACRO_CONCAT_INNER(a, b)

#define FUSIONLLM_RETURN_IF_ERROR(expr)                                                            \
  do {                                                                                             \
    if (::absl::Status fusionllm_status = (expr); !fusionllm_status.ok()) return fusionllm_status; \
  } while (false)

#define FUSIONLLM_ASSIGN_OR_RETURN(declaration, expr) \
  FUSIONLLM_ASSIGN_OR_RETURN_IMPL(FUSIONLLM_MACRO_CONCAT(fusionllm_statusor_, __LINE__), declaration, expr)
#define FUSIONLLM_ASSIGN_OR_RETURN_IMPL(result, declaration, expr) \
  auto result = (expr);                                            \
  if (!result.ok()) return std::move(result).status();             \
  declaration = *std::move(result)
