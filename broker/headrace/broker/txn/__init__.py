"""The coordinator of transactions: transactional ids, their producers' ids and epochs, and how each transaction ends."""
