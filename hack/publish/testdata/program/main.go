// Command program is another build than the one that hack/image's tests pack.
package main

func main() { println("another") }
