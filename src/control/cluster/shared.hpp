// A list that many have in common: copies share it until one of them is changed. The elements of an array
// carry one command and one environment between them, and not ten thousand. A value: one thread at a time,
// as the lists it stands for.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::cluster {

template <class T>
class Shared {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;
  using iterator = const_iterator;

  Shared() = default;
  // Implicit: it stands wherever the list did.
  Shared(std::vector<T> values) {
    if (!values.empty()) values_ = std::make_shared<std::vector<T>>(std::move(values));
  }
  Shared(std::initializer_list<T> values) : Shared(std::vector<T>(values)) {}

  const std::vector<T>& all() const {
    static const std::vector<T> none;
    return values_ ? *values_ : none;
  }
  operator const std::vector<T>&() const { return all(); }

  const_iterator begin() const { return all().begin(); }
  const_iterator end() const { return all().end(); }
  std::size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  const T& front() const { return all().front(); }
  const T& operator[](std::size_t at) const { return all()[at]; }

  // Is it held once for both?
  bool is_one_with(const Shared& other) const { return values_ == other.values_; }

  void push_back(T value) {
    if (!values_ || values_.use_count() > 1) values_ = std::make_shared<std::vector<T>>(all());
    values_->push_back(std::move(value));
  }

  friend bool operator==(const Shared& one, const Shared& other) {
    return one.values_ == other.values_ || one.all() == other.all();
  }

 private:
  std::shared_ptr<std::vector<T>> values_;
};

}  // namespace tutti::cluster
