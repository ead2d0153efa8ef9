// Package distributions checks the README's table of distributions and features: each
// row is a fixture, the Azure resources and Nodes as that distribution makes them, and the
// real command line says what is accepted and what is refused.
package distributions
