// The region that a builder is writing. Only the .cpp files here include this.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stablehlo/builder.h"

namespace torch_xla::stablehlo {

// Constants are shared within a region but not across: the regions of reduce, sort and the like may
// not use values from outside.
struct Builder::Scope {
  struct Scalar {
    std::string literal;
    Value value;
  };
  struct Splat {
    uint32_t scalar;
    Value value;
  };

  uint32_t number = 0;
  int depth = 2;  // Indentation of its operations.
  std::vector<Scalar> scalars;
  std::vector<Splat> splats;
};

// Redirects the builder into a fresh region or function until it goes out of scope, also by throw.
class Builder::ScopeGuard {
 public:
  // Only a kRegion sees the values around it.
  enum class Kind { kRegion, kIsolatedRegion, kFunction };

  ScopeGuard(Builder& builder, Kind kind)
      : builder_(builder), outer_(builder.scope_), text_(std::move(builder.body_)) {
    scope_.number = static_cast<uint32_t>(builder.scope_visible_.size());
    if (kind != Kind::kRegion) {
      visible_ = builder.scope_visible_;
      builder.scope_visible_.assign(visible_.size(), false);
    }
    if (kind != Kind::kFunction) scope_.depth = outer_->depth + 1;
    builder.scope_visible_.push_back(true);
    builder.scope_ = &scope_;
    builder.body_.clear();
  }

  ~ScopeGuard() {
    for (size_t i = 0; i < visible_.size(); ++i) builder_.scope_visible_[i] = visible_[i];
    builder_.scope_visible_[scope_.number] = false;
    builder_.scope_ = outer_;
    builder_.body_ = std::move(text_);
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Builder& builder_;
  Scope* outer_;
  std::string text_;
  std::vector<bool> visible_;
  Scope scope_;
};

}  // namespace torch_xla::stablehlo
