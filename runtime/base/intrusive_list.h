// A FIFO list whose links live in the elements: no allocation, O(1) removal.

#ifndef STILLPOINT_RUNTIME_BASE_INTRUSIVE_LIST_H_
#define STILLPOINT_RUNTIME_BASE_INTRUSIVE_LIST_H_

#include <cstddef>

namespace stillpoint {

// Base of an element. An element is in at most one list at a time.
template <typename T>
class IntrusiveNode {
 public:
  IntrusiveNode() = default;
  IntrusiveNode(const IntrusiveNode&) = delete;
  IntrusiveNode& operator=(const IntrusiveNode&) = delete;

 private:
  template <typename>
  friend class IntrusiveList;
  T* next_ = nullptr;
  T* previous_ = nullptr;
  bool linked_ = false;
};

// T derives from IntrusiveNode<T>. The list owns nothing; the caller locks.
template <typename T>
class IntrusiveList {
 public:
  IntrusiveList() = default;
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }
  T* front() const { return head_; }
  static T* Next(const T& element) { return Links(element).next_; }
  static bool IsLinked(const T& element) { return Links(element).linked_; }

  void PushBack(T& element) {
    IntrusiveNode<T>& links = Links(element);
    links.next_ = nullptr;
    links.previous_ = tail_;
    links.linked_ = true;
    (tail_ != nullptr ? Links(*tail_).next_ : head_) = &element;
    tail_ = &element;
    ++size_;
  }

  // Removes and returns the oldest element; null when empty.
  T* PopFront() {
    T* element = head_;
    if (element != nullptr) Remove(*element);
    return element;
  }

  // `element` must be in this list.
  void Remove(T& element) {
    IntrusiveNode<T>& links = Links(element);
    (links.previous_ != nullptr ? Links(*links.previous_).next_ : head_) =
        links.next_;
    (links.next_ != nullptr ? Links(*links.next_).previous_ : tail_) =
        links.previous_;
    links.next_ = links.previous_ = nullptr;
    links.linked_ = false;
    --size_;
  }

 private:
  static IntrusiveNode<T>& Links(T& element) { return element; }
  static const IntrusiveNode<T>& Links(const T& element) { return element; }

  T* head_ = nullptr;
  T* tail_ = nullptr;
  size_t size_ = 0;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_INTRUSIVE_LIST_H_
