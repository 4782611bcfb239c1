"""SCIM 2.0 (RFC 7643, RFC 7644): identity providers create, change and remove accounts and teams."""
